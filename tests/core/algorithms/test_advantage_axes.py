"""Advantages as transform x baseline x scale: every axis by hand, and what must hold at every point of the table."""

from __future__ import annotations

from itertools import product
from math import nan, sqrt
from typing import Any, get_args

import pytest
import torch
from torch import Tensor

from core.algorithms.advantages import Baseline, Normaliser, Scale, Transform, advantages, transformed
from core.algorithms.running import Running

TINY = 1e-12  # an eps that does not show in nine digits
GROUP_BASELINES: tuple[Baseline, ...] = ("group", "leave_one_out")
TABLE = list(product(get_args(Transform), get_args(Baseline), get_args(Scale)))
RUNNING = Running(count=3, weight=0.5, mean=0.1, variance=0.02)  # corrected: mean 0.2, variance 0.04, std 0.2


def how(baseline: str = "group", scale: str = "none", transform: str = "none", **more: Any) -> Normaliser:
    """A normaliser with ddof 0 and an eps that does not show."""
    named: dict[str, Any] = {"transform": transform, "baseline": baseline, "scale_rewards": scale}
    return Normaliser(**{"ddof": 0, "eps": TINY, **named, **more})


def rows(rewards: list[list[float]], norm: Normaliser, **state: Any) -> list[float]:
    """All advantages, group after group."""
    got = advantages(torch.tensor(rewards, dtype=torch.float64), norm, **state)
    return [float(a) for a in got.flatten()]


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
    got = rows([[0.0, 1.0, 2.0], [3.0, 3.0, 6.0]], how(baseline), running=RUNNING)
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
    got = rows([[0.0, 2.0], [0.0, 6.0]], how(scale=scale), running=RUNNING)
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
def test_virtual_best(rewards: list[float], norm: Normaliser, expected: list[float]) -> None:
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
    lengths = torch.tensor([[3, 1]])
    by_tokens = how("batch", "batch", weighting="tokens")
    assert rows([[0.0, 4.0]], by_tokens, lengths_PK=lengths) == pytest.approx([-1 / sqrt(3), 3 / sqrt(3)])
    assert rows([[0.0, 4.0]], how("batch", "batch"), lengths_PK=lengths) == pytest.approx([-1.0, 1.0])
    # Group mean 2 stays a mean of rows; its spread -2 and 2 counts by token: mean -1, squares 3 * 1 + 9 = 12, over 4.
    centred = how("group", "batch_centred", weighting="tokens")
    assert rows([[0.0, 4.0]], centred, lengths_PK=lengths) == pytest.approx([-2 / sqrt(3), 2 / sqrt(3)])
    # ddof 1 takes one token off the divisor: 12 / 3.
    got = rows([[0.0, 4.0]], how("batch", "batch", weighting="tokens", ddof=1), lengths_PK=lengths)
    assert got == pytest.approx([-1 / 2, 3 / 2])


def test_weighting_by_tokens_needs_lengths() -> None:
    with pytest.raises(ValueError, match="lengths_PK"):
        rows([[0.0, 1.0]], how("batch", weighting="tokens"))


def test_batch_where_nothing_was_drawn() -> None:
    norm = how("batch", "batch", weighting="tokens")
    assert rows([[0.0, 1.0]], norm, lengths_PK=torch.zeros(1, 2)) == [0.0, 0.0]


@pytest.mark.parametrize("state", [None, Running()])
def test_running_without_a_past_is_the_batch_itself(state: Running | None) -> None:
    # Mean 2, divisor n: squares 8 over 2 whatever ddof says.
    assert rows([[0.0, 4.0]], how("running", "running", ddof=1), running=state) == pytest.approx([-1.0, 1.0])


def test_running_without_a_spread_measures_nothing() -> None:
    equal = Running(count=2, weight=0.19, mean=0.19 * 0.7, variance=1e-33)  # every reward so far was 0.7
    assert rows([[0.7, 1.0]], how("running", "running"), running=equal) == [0.0, 0.0]
    assert rows([[0.7, 1.0]], how("running", "running", std_floor=0.1), running=equal) == pytest.approx([0.0, 3.0])


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
def test_floor_and_clip(norm: Normaliser, expected: list[float]) -> None:
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
    full = rows([[0.0, 1.0, 3.0], [2.0, 2.0, 5.0]], norm, running=RUNNING)
    holed = rows([[0.0, nan, 1.0, 3.0], [2.0, 2.0, 5.0, nan], [nan] * 4], norm, running=RUNNING)
    assert [holed[i] for i in (0, 2, 3, 4, 5, 6)] == pytest.approx(full)
    assert [holed[i] for i in (1, 7, 8, 9, 10, 11)] == [0.0] * 6


def equal_groups(k: int) -> Tensor:
    """300 groups of equal rewards, 0.01 to 3.00, half of them reached as sums of shaped rewards in mixed orders."""
    cents = torch.arange(1, 301, dtype=torch.float64).unsqueeze(-1) / 100
    parts = cents * torch.tensor([0.1, 0.2, 0.7], dtype=torch.float64)
    orders = ((0, 1, 2), (2, 1, 0), (1, 2, 0), (0, 2, 1))
    sums = torch.cat([(parts[:, a] + parts[:, b] + parts[:, c]).unsqueeze(-1) for a, b, c in orders], dim=-1)
    mixed = sums[:, torch.arange(k) % len(orders)]
    return torch.where((torch.arange(300) % 2 == 0).unsqueeze(-1), mixed, cents.expand(-1, k))


@pytest.mark.parametrize(
    ("transform", "baseline", "scale"), list(product(get_args(Transform), GROUP_BASELINES, get_args(Scale)))
)
def test_equal_rewards_give_exactly_zero(transform: str, baseline: str, scale: str) -> None:
    # 7 sizes of 300 groups beside one that is alive, so that batch scales divide by something; fp32 formulas of
    # well-known trainers give up to 477 here.
    norm = how(baseline, scale, transform, ddof=1, eps=1e-9)
    for k in (2, 3, 4, 7, 8, 16, 32):
        groups = equal_groups(k)
        assert k < 3 or (groups != groups[:, :1]).any()  # rounding does tell some apart: that is the trap
        alive = torch.arange(k, dtype=torch.float64).unsqueeze(0)
        got = advantages(torch.cat([alive, groups]), norm, running=RUNNING)
        assert got[0].any()
        assert not got[1:].any()
        for alone in (groups[:1], groups[:40]):  # nor where nothing in the batch is alive
            assert not advantages(alone, norm).any()


@pytest.mark.parametrize("scale", get_args(Scale))
@pytest.mark.parametrize("transform", get_args(Transform))
def test_a_batch_of_equal_rewards_gives_zero_against_its_own_mean(transform: str, scale: str) -> None:
    group = torch.tensor([[0.1 + 0.2, 0.3], [0.3, 0.2 + 0.1]], dtype=torch.float64)
    assert not advantages(group, how("batch", scale, transform, eps=1e-9)).any()


@pytest.mark.parametrize(
    ("transform", "baseline", "scale"),
    # The raw batch std is moved by one group's constant: that is what is wrong with it.
    [point for point in product(get_args(Transform), GROUP_BASELINES, get_args(Scale)) if point[2] != "batch"],
)
@pytest.mark.parametrize("constant", [-3.0, 0.1, 100.0])
def test_adding_a_constant_to_one_group_changes_nothing(
    transform: str, baseline: str, scale: str, constant: float
) -> None:
    rewards = torch.rand(20, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    norm = how(baseline, scale, transform, ddof=1, eps=1e-4)
    moved = rewards.clone()
    moved[3] += constant
    assert torch.allclose(
        advantages(moved, norm, running=RUNNING), advantages(rewards, norm, running=RUNNING), atol=1e-9
    )


@pytest.mark.parametrize("transform", get_args(Transform))
def test_what_running_statistics_are_fed_with(transform: str) -> None:
    rewards = torch.tensor([[0.0, 5.0, nan]])
    got = transformed(rewards, how(transform=transform, virtual_best=9.0))
    expected = [0.0, 5.0, nan] if transform == "none" else [-1.0, 0.0, nan]  # ranks 1 2 of 0 5 9
    assert got.tolist()[0] == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize("baseline", ["group", "leave_one_out", "none"])
def test_a_virtual_member_that_drew_no_token_makes_no_spread(baseline: str) -> None:
    """Its token weight is 0: the raw std over 0.3, 0.3, ... is then rounding, and divided by would give 1e8."""
    rewards = torch.full((3, 4), 0.3, dtype=torch.float64)
    norm = how(baseline, "batch", virtual_best=5.0, weighting="tokens", eps=1e-8)
    assert not advantages(rewards, norm, lengths_PK=torch.tensor([[1, 2, 3, 4]] * 3)).any()
