"""Advantages as transform x baseline x scale: every axis by hand, and what must hold at every point of the table.

Weights of candidates: softmax tables, top-k and ties.
"""

from __future__ import annotations

import itertools
from collections import Counter
from itertools import permutations, product
from math import exp, inf, log, nan, sqrt
from typing import Any, get_args

import numpy as np
import pytest

from core.algorithms.advantages import (
    Array,
    Level,
    advantages,
    candidate_weights,
    choice_scores,
    group_std,
    kept_counts,
    whole,
)
from core.algorithms.names import BASELINES, SCALES, TRANSFORMS, Baseline, CandidateChoice, Scale, Transform, scopes
from core.config import AdvantageSpec

TINY = 1e-12  # an eps that does not show in nine digits
GROUP_BASELINES = [name for name, traits in BASELINES.items() if traits.scope == "group"]
TABLE = [
    (transform, baseline, scale)
    for transform, baseline, scale in product(get_args(Transform), get_args(Baseline), get_args(Scale))
    if TRANSFORMS[transform].keeps_rewards or "history" not in (BASELINES[baseline].scope, SCALES[scale].scope)
]
VARIANTS: list[dict[str, Any]] = [
    {},
    {"ddof": 0, "eps": 1e-8},
    {"std_floor": 0.3},
    {"clip": 0.6},
    {"virtual_best": 1.0},
    {"virtual_best": 0.5, "ddof": 0},
    {"virtual_best": 2.0},
    {"weighting": "tokens"},
    {"weighting": "tokens", "virtual_best": 1.0, "ddof": 0},
]
BEFORE = Level(mean=0.2, std=0.2)
ONE_OF_EIGHT = [1.0] + [0.0] * 7


def how(baseline: str = "group", scale: str = "none", transform: str = "none", **more: Any) -> AdvantageSpec:
    """A normaliser with ddof 0 and an eps that does not show."""
    named: dict[str, Any] = {"transform": transform, "baseline": baseline, "scale_rewards": scale}
    return AdvantageSpec(**{"ddof": 0, "eps": TINY, **named, **more})


def rows(rewards: list[list[float]], norm: AdvantageSpec, **state: Any) -> list[float]:
    """All advantages, group after group."""
    return [float(a) for a in advantages(rewards, norm, **state).flatten()]


@pytest.mark.parametrize(
    ("rewards", "ddof", "expected"),
    [
        # K=2: mean m, both deviate by d = (high - low) / 2. ddof 0: std = d, so +-1 whatever the rewards are.
        ([0.0, 1.0], 0, [-1.0, 1.0]),
        ([0.7, 0.2], 0, [1.0, -1.0]),
        # ddof 1: std = sqrt(2 d^2 / 1) = d sqrt 2, so +-0.7071.
        ([0.0, 1.0], 1, [-sqrt(0.5), sqrt(0.5)]),
        ([0.7, 0.2], 1, [sqrt(0.5), -sqrt(0.5)]),
        # K=8, one success: mean 1/8, deviations 7/8 and -1/8, squares 49/64 + 7/64 = 7/8.
        # ddof 0: std = sqrt(7/64); A = (7/8) / (sqrt(7)/8) = sqrt(7) = 2.6458, the others -1/sqrt(7).
        (ONE_OF_EIGHT, 0, [sqrt(7)] + [-1 / sqrt(7)] * 7),
        # ddof 1: std = sqrt(1/8); A = (7/8) sqrt(8) = 2.4749, the others -sqrt(8)/8.
        (ONE_OF_EIGHT, 1, [7 * sqrt(8) / 8] + [-sqrt(8) / 8] * 7),
        # K=4, 0 0.2 0.4 1.0: mean 0.4, deviations -0.4 -0.2 0 0.6, squares 0.56; ddof 1: std = sqrt(0.56 / 3).
        ([0.0, 0.2, 0.4, 1.0], 1, [d / sqrt(0.56 / 3) for d in (-0.4, -0.2, 0.0, 0.6)]),
        # A missing reward is no member of its group: mean of 1 and 0, and not of 1, 0, 0.
        ([1.0, nan, 0.0], 0, [1.0, 0.0, -1.0]),
        ([1.0, nan, 0.0, nan], 1, [sqrt(0.5), 0.0, -sqrt(0.5), 0.0]),
        # Fewer than two present: nothing to compare with.
        ([1.0, nan, nan], 0, [0.0, 0.0, 0.0]),
        ([nan, nan], 0, [0.0, 0.0]),
    ],
)
def test_z_scores(rewards: list[float], ddof: int, expected: list[float]) -> None:
    assert rows([rewards], how(scale="group", ddof=ddof)) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [
        ([0.0, 1.0], [-0.5, 0.5]),
        ([1.0, 0.0, 0.0, 0.0], [0.75, -0.25, -0.25, -0.25]),
        ([3.0, nan, 0.0], [1.5, 0.0, -1.5]),
    ],
)
def test_mean_only(rewards: list[float], expected: list[float]) -> None:
    assert rows([rewards], how(eps=0.5, ddof=1)) == expected  # neither eps nor ddof has a part in it


def test_eps_is_added_to_the_std_and_is_no_floor() -> None:
    # std 0.5, eps 0.5: 0.5 / (0.5 + 0.5) = 0.5. A floor of 0.5 would leave 0.5 / 0.5 = 1.
    assert rows([[0.0, 1.0]], how(scale="group", eps=0.5)) == [-0.5, 0.5]


def test_groups_do_not_see_each_other() -> None:
    got = rows([[0.0, 1.0], [5.0, 5.0], [7.0, 3.0]], how(scale="group"))
    assert got == pytest.approx([-1, 1, 0, 0, 1, -1])
    assert got[2:4] == [0.0, 0.0]


@pytest.mark.parametrize("wrong", [inf, -inf])
def test_infinite_rewards_are_refused(wrong: float) -> None:
    with pytest.raises(ValueError, match="infinite reward"):
        rows([[0.0, wrong]], how())


def test_advantages_of_a_group_sum_to_zero_and_keep_the_order_of_rewards() -> None:
    rewards = np.random.default_rng(0).random((20, 8))
    got = advantages(rewards, how(scale="group", ddof=1, eps=1e-4))
    assert abs(got.sum(-1)).max() < 1e-12
    assert (got.argsort(-1) == rewards.argsort(-1)).all()


@pytest.mark.parametrize(
    ("baseline", "expected"),
    [
        # Groups 0 1 2 (mean 1) and 3 3 6 (mean 4); the batch's mean 15 / 6 = 2.5.
        ("group", [-1.0, 0.0, 1.0, -1.0, -1.0, 2.0]),
        # 0 - (1 + 2) / 2, 1 - (0 + 2) / 2, 2 - (0 + 1) / 2; 3 - (3 + 6) / 2 twice, 6 - 3.
        ("leave_one_out", [-1.5, 0.0, 1.5, -1.5, -1.5, 3.0]),
        ("batch", [-2.5, -1.5, -0.5, 0.5, 0.5, 3.5]),
        ("running", [-0.2, 0.8, 1.8, 2.8, 2.8, 5.8]),
        ("none", [0.0, 1.0, 2.0, 3.0, 3.0, 6.0]),
    ],
)
def test_baselines(baseline: str, expected: list[float]) -> None:
    got = rows([[0.0, 1.0, 2.0], [3.0, 3.0, 6.0]], how(baseline), before=BEFORE)
    assert got == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("scale", "std"),
    [
        # Groups 0 2 and 0 6, centred -1 1 and -3 3.
        ("none", [1.0, 1.0]),
        ("group", [1.0, 3.0]),
        # Raw 0 2 0 6: mean 2, squares 4 + 0 + 4 + 16 = 24, over 4.
        ("batch", [sqrt(6), sqrt(6)]),
        # Centred: squares 1 + 1 + 9 + 9 = 20, over 4.
        ("batch_centred", [sqrt(5), sqrt(5)]),
        ("running", [0.2, 0.2]),
    ],
)
def test_scales(scale: str, std: list[float]) -> None:
    got = rows([[0.0, 2.0], [0.0, 6.0]], how(scale=scale), before=BEFORE)
    assert got == pytest.approx([-1 / std[0], 1 / std[0], -3 / std[1], 3 / std[1]])


def test_raw_and_centred_batch_std_of_an_easy_and_a_hard_prompt() -> None:
    # 7 of 8 right and 1 of 8: mean 1/2, squares 16/4 = 4, ddof 1: sqrt(4/15) = 0.5164.
    # Centred: each group has squares 7/8 (7 (1/8)^2 + (7/8)^2): sqrt(14/8/15) = 0.3416: the difficulty is out of it.
    easy_and_hard = [[1.0] * 7 + [0.0], [1.0] + [0.0] * 7]
    raw = rows(easy_and_hard, how(scale="batch", ddof=1))
    centred = rows(easy_and_hard, how(scale="batch_centred", ddof=1))
    assert 0.125 / raw[0] == pytest.approx(0.516, abs=5e-4)
    assert 0.125 / centred[0] == pytest.approx(0.342, abs=5e-4)


def test_one_success_of_eight() -> None:
    # TRL's constants: (7/8) / (sqrt(1/8) + 1e-4) = 2.4742 for ddof 1, (7/8) / (sqrt(7/64) + 1e-4) = 2.6450 for 0.
    one = [[1.0] + [0.0] * 7]
    assert rows(one, how(scale="group", ddof=1, eps=1e-4))[0] == pytest.approx(2.474, abs=5e-4)
    assert rows(one, how(scale="group", ddof=0, eps=1e-4))[0] == pytest.approx(2.645, abs=5e-4)


@pytest.mark.parametrize(
    ("rewards", "norm", "expected"),
    [
        # NGRPO: one right of 8 and a virtual 1: mean 2/9, squares 2 (7/9)^2 + 7 (2/9)^2 = 126/81, ddof 1: over 8.
        # std 0.44096: 0.7778 / 0.44096 = 1.764, -0.2222 / 0.44096 = -0.504. Without it: 2.474 and -0.354.
        ([1.0] + [0.0] * 7, how(scale="group", ddof=1, virtual_best=1.0), [1.764] + [-0.504] * 7),
        # All wrong is no longer dead: mean 1/3, ddof 0: squares 2/3, over 3; -(1/3) / sqrt(2/9) = -0.7071.
        ([0.0, 0.0], how(scale="group", virtual_best=1.0), [-0.7071, -0.7071]),
        # All right: nothing to be better than.
        ([1.0, 1.0], how(scale="group", virtual_best=1.0), [0.0, 0.0]),
        # Leave one out: the others of the first are 0 and the virtual 1; of the second 0.5 and 1.
        ([0.5, 0.0], how("leave_one_out", virtual_best=1.0), [0.0, -0.75]),
        # Ranks: 0.5 is 2nd of three, 0 the 3rd.
        ([0.5, 0.0], how(transform="rank", virtual_best=1.0), [0.0, -1.0]),
        # One alone against the virtual one: mean 0.5.
        ([0.0, nan], how(virtual_best=1.0), [-0.5, 0.0]),
    ],
)
def test_virtual_best(rewards: list[float], norm: AdvantageSpec, expected: list[float]) -> None:
    assert rows([rewards], norm) == pytest.approx(expected, abs=5e-4)


def test_a_virtual_member_of_a_group_without_rewards_counts_nowhere() -> None:
    # Mean of 0, 0 and the first group's virtual 1 alone: 1/3.
    got = rows([[0.0, 0.0], [nan, nan]], how("batch", virtual_best=1.0))
    assert got == pytest.approx([-1 / 3, -1 / 3, 0.0, 0.0])


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [
        # u = -1.5 -0.5 0.5 1.5, squares 5, over 4: whatever the gaps between rewards are.
        ([0.0, 0.2, 0.4, 1000.0], [u / sqrt(1.25) for u in (-1.5, -0.5, 0.5, 1.5)]),
        # Binary: the z-score again, 2.6458 and -0.378 (u: one 3.5, seven -0.5; squares 14, over 8).
        ([1.0] + [0.0] * 7, [3.5 / sqrt(1.75)] + [-0.5 / sqrt(1.75)] * 7),
    ],
)
def test_ranks_are_scaled_like_rewards(rewards: list[float], expected: list[float]) -> None:
    assert rows([rewards], how(transform="rank", scale="group")) == pytest.approx(expected)


def test_weighting_by_tokens() -> None:
    # 0 over 3 tokens and 4 over 1: mean 1, squares 3 * 1 + 1 * 9 = 12, over 4: std sqrt(3); by rows: 2 and 2.
    lengths = [[3, 1]]
    by_tokens = how("batch", "batch", weighting="tokens")
    assert rows([[0.0, 4.0]], by_tokens, lengths_PC=lengths) == pytest.approx([-1 / sqrt(3), 3 / sqrt(3)])
    assert rows([[0.0, 4.0]], how("batch", "batch"), lengths_PC=lengths) == pytest.approx([-1.0, 1.0])
    # Group mean 2 stays a mean of rows; its spread -2 and 2 counts by token: mean -1, squares 3 * 1 + 9 = 12, over 4.
    centred = how("group", "batch_centred", weighting="tokens")
    assert rows([[0.0, 4.0]], centred, lengths_PC=lengths) == pytest.approx([-2 / sqrt(3), 2 / sqrt(3)])
    # ddof 1 takes one token off the divisor: 12 / 3.
    got = rows([[0.0, 4.0]], how("batch", "batch", weighting="tokens", ddof=1), lengths_PC=lengths)
    assert got == pytest.approx([-1 / 2, 3 / 2])


def test_weighting_by_tokens_needs_lengths() -> None:
    with pytest.raises(ValueError, match="lengths_PC"):
        rows([[0.0, 1.0]], how("batch", weighting="tokens"))


def test_batch_where_nothing_was_drawn() -> None:
    norm = how("batch", "batch", weighting="tokens")
    assert rows([[0.0, 1.0]], norm, lengths_PC=[[0, 0]]) == [0.0, 0.0]


def test_running_without_a_past_is_the_batch_itself() -> None:
    # Mean 2, divisor n: squares 8 over 2 whatever ddof says.
    assert rows([[0.0, 4.0]], how("running", "running", ddof=1)) == pytest.approx([-1.0, 1.0])


def test_running_without_a_spread_measures_nothing() -> None:
    equal = Level(mean=0.7, std=1e-16)  # every reward so far was 0.7
    assert rows([[0.7, 1.0]], how("running", "running"), before=equal) == [0.0, 0.0]
    assert rows([[0.7, 1.0]], how("running", "running", std_floor=0.1), before=equal) == pytest.approx([0.0, 3.0])


@pytest.mark.parametrize(
    ("norm", "expected"),
    [
        (how(scale="group", std_floor=0.25), [-1.0, 1.0]),  # std 0.5 is above it
        (how(scale="group", std_floor=2.0), [-0.25, 0.25]),  # 0.5 / 2
        (how(scale="group", std_floor=2.0, eps=0.5), [-0.2, 0.2]),  # 0.5 / (2 + 0.5): eps is added to the floor too
        (how(scale="none", std_floor=2.0, eps=0.5), [-0.5, 0.5]),  # nothing is divided
        (how(scale="group", clip=0.3), [-0.3, 0.3]),
        (how(scale="group", clip=1.5), [-1.0, 1.0]),
    ],
)
def test_floor_and_clip(norm: AdvantageSpec, expected: list[float]) -> None:
    assert rows([[0.0, 1.0]], norm) == pytest.approx(expected)


def test_a_group_without_spread_is_no_unit() -> None:
    # Batch mean 0.5 leaves +-0.5 in groups whose own std is 0: 0.5 / eps would be 5e11.
    assert rows([[1.0, 1.0], [0.0, 0.0]], how("batch", "group")) == [0.0] * 4
    assert rows([[1.0, 1.0], [0.0, 0.0]], how("batch", "group", std_floor=0.5)) == pytest.approx([1, 1, -1, -1])
    assert rows([[1.0, 1.0], [1.0, 1.0]], how("none", "batch")) == [0.0] * 4
    # Nor is a spread that is rounding.
    assert rows([[0.1 + 0.2, 0.3], [0.0, 0.0]], how("batch", "group")) == [0.0] * 4
    assert rows([[0.1 + 0.2, 0.3], [0.3, 0.3]], how("none", "batch")) == [0.0] * 4


@pytest.mark.parametrize(("transform", "baseline", "scale"), TABLE)
def test_a_missing_reward_gets_zero_and_moves_nobody(transform: str, baseline: str, scale: str) -> None:
    norm = how(baseline, scale, transform)
    full = rows([[0.0, 1.0, 3.0], [2.0, 2.0, 5.0]], norm, before=BEFORE)
    holed = rows([[0.0, nan, 1.0, 3.0], [2.0, 2.0, 5.0, nan], [nan] * 4], norm, before=BEFORE)
    assert [holed[i] for i in (0, 2, 3, 4, 5, 6)] == pytest.approx(full)
    assert [holed[i] for i in (1, 7, 8, 9, 10, 11)] == [0.0] * 6


def equal_groups(k: int) -> Array:
    """300 groups of equal rewards, 0.01 to 3.00, half of them reached as sums of shaped rewards in mixed orders."""
    cents = np.arange(1, 301)[:, None] / 100
    parts = cents * np.array([0.1, 0.2, 0.7])
    orders = ((0, 1, 2), (2, 1, 0), (1, 2, 0), (0, 2, 1))
    sums = np.stack([parts[:, a] + parts[:, b] + parts[:, c] for a, b, c in orders], axis=-1)
    mixed = sums[:, np.arange(k) % len(orders)]
    return np.where(np.arange(300)[:, None] % 2 == 0, mixed, np.repeat(cents, k, axis=1))


@pytest.mark.parametrize(("transform", "baseline", "scale"), [point for point in TABLE if point[1] in GROUP_BASELINES])
def test_equal_rewards_give_exactly_zero(transform: str, baseline: str, scale: str) -> None:
    # 7 sizes of 300 groups beside one that is alive, so that batch scales divide by something; fp32 formulas of
    # well-known trainers give up to 477 here.
    norm = how(baseline, scale, transform, ddof=1, eps=1e-9)
    for k in (2, 3, 4, 7, 8, 16, 32):
        groups = equal_groups(k)
        assert k < 3 or (groups != groups[:, :1]).any()  # rounding does tell some apart: that is the trap
        got = advantages(np.concatenate([np.arange(k)[None], groups]), norm, before=BEFORE)
        assert got[0].any()
        assert not got[1:].any()
        for alone in (groups[:1], groups[:40]):  # nor where nothing in the batch is alive
            assert not advantages(alone, norm).any()


def equal_sums() -> list[list[float]]:
    """Groups whose rewards are one sum of shaped rewards, added up in every order: equal but for rounding."""
    parts = [(0.1, 0.2, 0.3), (0.1, 0.2, 0.4, 0.7), (0.3, -0.1, 0.05, 1 / 3), (0.7, 0.2, 1e-3, 0.11)]
    groups = [[sum(order) for order in permutations(part)] for part in parts]
    assert all(len(set(group)) > 1 for group in groups)  # rounding does tell them apart: that is the trap
    return groups


@pytest.mark.parametrize("scale", ["group", "none"])
def test_sums_that_are_equal_but_for_rounding_give_exactly_zero(scale: str) -> None:
    for group in equal_sums():
        assert set(rows([group], how(scale=scale, ddof=1, eps=1e-9))) == {0.0}, group


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_the_answer_is_float64_and_0_for_equal_rewards_whatever_the_rewards_are(dtype: Any) -> None:
    groups = np.repeat((np.arange(1, 301)[:, None] / 100).astype(dtype), 12, axis=1)
    got = advantages(groups, how(scale="group", ddof=1, eps=1e-9))
    assert got.dtype == np.float64
    assert not got.any()


@pytest.mark.parametrize(("transform", "scale"), [point[::2] for point in TABLE if point[1] == "batch"])
def test_a_batch_of_equal_rewards_gives_zero_against_its_own_mean(transform: str, scale: str) -> None:
    assert not advantages([[0.1 + 0.2, 0.3], [0.3, 0.2 + 0.1]], how("batch", scale, transform, eps=1e-9)).any()


@pytest.mark.parametrize(
    ("transform", "baseline", "scale"),
    # The raw batch std is moved by one group's constant: that is what is wrong with it.
    [
        (transform, baseline, scale)
        for transform, baseline, scale in TABLE
        if transform in ("none", "rank") and baseline in GROUP_BASELINES and scale != "batch"
    ],
)
@pytest.mark.parametrize("constant", [-3.0, 0.1, 100.0])
def test_adding_a_constant_to_one_group_changes_nothing(
    transform: str, baseline: str, scale: str, constant: float
) -> None:
    rewards = np.random.default_rng(0).random((20, 8))
    norm = how(baseline, scale, transform, ddof=1, eps=1e-4)
    moved = rewards.copy()
    moved[3] += constant
    assert advantages(moved, norm, before=BEFORE) == pytest.approx(advantages(rewards, norm, before=BEFORE), abs=1e-9)


@pytest.mark.parametrize("baseline", ["group", "leave_one_out", "none"])
def test_a_virtual_member_that_drew_no_token_makes_no_spread(baseline: str) -> None:
    """Its token weight is 0: the raw std over 0.3, 0.3, ... is then rounding, and divided by would give 1e8."""
    rewards = np.full((3, 4), 0.3)
    norm = how(baseline, "batch", virtual_best=5.0, weighting="tokens", eps=1e-8)
    assert not advantages(rewards, norm, lengths_PC=[[1, 2, 3, 4]] * 3).any()


@pytest.mark.parametrize(
    ("ddof", "rewards", "counts", "expected"),
    [
        # one right of two: mean 1/2, deviations 1/2; std with divisor 2: 1/2, with divisor 1: 1/sqrt(2)
        (0, [0.0, 1.0], [1, 1], [-1.0, 1.0]),
        (1, [0.0, 1.0], [1, 1], [-sqrt(0.5), sqrt(0.5)]),
        # one right of four, divisor 3: std 1/2, deviations -1/4 and 3/4
        (1, [0.0, 1.0], [3, 1], [-0.5, 1.5]),
        (0, [0.0, 1.0], [4, 0], [0.0, 0.0]),
        (0, [0.0, 7.0, 1.0], [2, 0, 2], [-1.0, 0.0, 1.0]),  # what nobody earned counts nowhere
    ],
)
def test_a_column_may_stand_for_many(ddof: int, rewards: list[float], counts: list[int], expected: list[float]) -> None:
    assert rows([rewards], how(scale="group", ddof=ddof), counts_PC=[counts]) == pytest.approx(expected)


LEVELS = (0.0, 0.1 + 0.2, 0.3, 0.7, 1.0)  # two of them are equal within the tolerance


@pytest.mark.parametrize(("transform", "baseline", "scale"), [row for row in TABLE if not TRANSFORMS[row[0]].by_place])
def test_counts_are_as_many_columns(transform: str, baseline: str, scale: str) -> None:
    generator = np.random.default_rng(0)
    for variant, trial in itertools.product(VARIANTS, range(6)):
        norm = AdvantageSpec.model_validate(
            {"transform": transform, "baseline": baseline, "scale_rewards": scale, **variant}
        )
        drawn = [generator.choice(LEVELS[: 2 + trial % 4], generator.choice((1, 2, 4, 5))).tolist() for _ in range(3)]
        before = (None, Level(mean=0.4, std=0.25), Level(mean=0.5, std=0.0))[trial % 3]
        spelled = [row + [nan] * (5 - len(row)) for row in drawn]
        each = advantages(spelled, norm, before=before, lengths_PC=np.full((3, 5), 7))
        counts = [[Counter(row)[level] for level in LEVELS] for row in drawn]
        together = advantages([LEVELS] * 3, norm, counts_PC=counts, before=before, lengths_PC=7)
        for group, row in enumerate(drawn):
            expected = [together[group, LEVELS.index(reward)] for reward in row]
            assert each[group, : len(row)] == pytest.approx(expected, abs=1e-9), (variant, drawn, before)


def test_a_group_s_advantages_depend_on_other_groups_where_a_scope_is_the_batch() -> None:
    for transform, baseline, scale in TABLE:
        norm, one, level = how(baseline, scale, transform), [0.0, 1.0], Level(mean=0.5, std=0.5)
        alone = advantages([one, one], norm, before=level)[0]
        beside = advantages([one, [1.0, 1.0]], norm, before=level)[0]
        same = alone == pytest.approx(beside)
        assert same != ("batch" in scopes(norm)) or transform != "none", (baseline, scale)


@pytest.mark.parametrize(
    ("scores", "tau", "keep", "expected"),
    [
        # exp: 1, 2, 4 -> 1/7, 2/7, 4/7.
        ([0.0, log(2), log(4)], 1.0, None, [1 / 7, 2 / 7, 4 / 7]),
        # Half the temperature squares the odds: 1, 4, 16.
        ([0.0, log(2), log(4)], 0.5, None, [1 / 21, 4 / 21, 16 / 21]),
        # The two best.
        ([0.0, log(2), log(4)], 1.0, 2, [0.0, 1 / 3, 2 / 3]),
        ([log(4), 0.0, log(2)], 1.0, 1, [1.0, 0.0, 0.0]),
        ([0.0, log(2), log(4)], 1.0, 9, [1 / 7, 2 / 7, 4 / 7]),
        # A tie at the edge: the earlier one stays.
        ([0.5, 1.0, 1.0, 1.0], 1.0, 2, [0.0, 0.5, 0.5, 0.0]),
        # Missing scores take no part, and no place.
        ([nan, 0.0, nan, log(3)], 1.0, 2, [0.0, 1 / 4, 0.0, 3 / 4]),
        ([nan, 0.3], 1.0, 2, [0.0, 1.0]),
        ([nan, nan], 1.0, None, [0.0, 0.0]),
        # No overflow, no 0 / 0.
        ([1000.0, 999.0], 0.001, None, [1.0, 0.0]),
        ([-1000.0, -1000.0], 0.001, None, [0.5, 0.5]),
        ([0.0, 1.0], 10.0, None, [1 / (1 + exp(0.1)), exp(0.1) / (1 + exp(0.1))]),
    ],
)
def test_table(scores: list[float], tau: float, keep: int | None, expected: list[float]) -> None:
    got = candidate_weights([scores], tau=tau, keep=keep)
    assert got.tolist() == [pytest.approx(expected, abs=1e-12)]


def test_prompts_do_not_see_each_other() -> None:
    got = candidate_weights([[0.0, 0.0], [9.0, nan], [nan, nan]], tau=1.0, keep=2)
    assert got.tolist() == [[0.5, 0.5], [1.0, 0.0], [0.0, 0.0]]
    assert got.dtype == "float64"


@pytest.mark.parametrize(
    ("score", "tau", "keep", "message"),
    [(0.0, 0.0, None, "tau"), (0.0, -1.0, None, "tau"), (0.0, 1.0, 0, "keep"), (inf, 1.0, None, "infinite")],
)
def test_refusals(score: float, tau: float, keep: int | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        candidate_weights([[score, 1.0]], tau=tau, keep=keep)


@pytest.mark.parametrize(
    ("scores", "counts", "keep", "expected"),
    [
        ([0.3, 0.9, 0.5], None, 2, [0, 1, 1]),
        ([0.5, 1.0, 1.0, 1.0], None, 2, [0, 1, 1, 0]),  # a tie at the edge: the earlier one stays
        ([nan, 0.2, nan], None, 2, [0, 1, 0]),  # missing ones have no place
        # Levels 0, 0.5 and 1, of which 2, 3 and 1 candidates are: the best four are one 1 and three 0.5.
        ([0.0, 0.5, 1.0], [2, 3, 1], 4, [0, 3, 1]),
        ([0.0, 0.5, 1.0], [2, 3, 1], 2, [0, 1, 1]),
        ([0.0, 0.5, 1.0], [2, 3, 1], 9, [2, 3, 1]),
    ],
)
def test_the_best_stay(scores: list[float], counts: list[int] | None, keep: int, expected: list[int]) -> None:
    assert kept_counts([scores], keep, counts_PC=None if counts is None else [counts]).tolist() == [expected]


@pytest.mark.parametrize(("keep", "expected"), [(4.0, 4), (2.6, 3), (0.3, 1)])
def test_a_schedule_s_value_is_rounded_and_leaves_one(keep: float, expected: int) -> None:
    assert whole(keep) == expected


def test_the_std_of_a_group_of_one_is_0_and_not_a_number_missing() -> None:
    # divisor n - ddof: two rewards 1 and 3 have squares 2 over 1; one reward alone has 0 over 0
    assert group_std([[1.0, 3.0], [5.0, nan], [nan, nan]], 1).tolist() == [[sqrt(2.0)], [0.0], [0.0]]


def test_ranks_by_order_break_ties_by_place() -> None:
    how = AdvantageSpec(transform="rank_by_order", baseline="none", scale_rewards="none")
    got = advantages([[2.0, 5.0, 1.0, 2.0, nan], [3.0, 3.0, 3.0, nan, nan], [7.0, nan, nan, nan, nan]], how)
    assert got[0].tolist() == pytest.approx([1 / 3, 1.0, -1.0, -1 / 3, 0.0])
    assert got[1].tolist() == pytest.approx([1.0, 0.0, -1.0, 0.0, 0.0])  # equal rewards: by their order alone
    assert got[2].tolist() == [0.0] * 5
    # Two completions of one column share the mean of their ranks.
    assert advantages([[2.0, 1.0]], how, counts_PC=[[1.0, 2.0]])[0].tolist() == pytest.approx([1.0, -0.5])
    # Documents 001's "about .7 to .8": five candidates, ddof 1 and 0.
    five = advantages([[5.0, 4.0, 3.0, 2.0, 1.0]], how)[0]
    assert (five.std(ddof=1), five.std()) == (pytest.approx(0.79, abs=0.005), pytest.approx(0.707, abs=0.001))


def test_which_candidates_a_choice_keeps() -> None:
    rewards = [[2.0, 2.0, 2.0, 0.0, nan]]
    orders = [[3, 1, 4, 2, 0]]
    right = [[True, True, True, False, False]]

    def kept(choice: CandidateChoice, keep: int) -> list[float]:
        scores = choice_scores(rewards, choice, orders_PK=orders, right_PK=right)
        return kept_counts(scores, keep)[0].tolist()

    assert kept("best", 2) == [1, 1, 0, 0, 0]
    assert kept("random", 2) == [0, 1, 0, 1, 0]
    assert kept("random", 1) == [0, 1, 0, 0, 0]
    assert kept("stratified", 2) == [0, 1, 0, 1, 0]
    assert kept("stratified", 3) == [1, 1, 0, 1, 0]
    late = choice_scores([[2.0, 2.0, 0.0]], "stratified", orders_PK=[[0, 1, 2]], right_PK=[[True, True, False]])
    assert kept_counts(late, 2)[0].tolist() == [1, 0, 1]  # the wrong one comes last, and is kept
    alike = choice_scores([[2.0, 2.0, 2.0]], "stratified", orders_PK=[[2, 1, 0]], right_PK=[[True, True, True]])
    assert kept_counts(alike, 2)[0].tolist() == [0, 1, 1]
    with pytest.raises(ValueError, match="stratified"):
        choice_scores(rewards, "stratified", orders_PK=orders)
