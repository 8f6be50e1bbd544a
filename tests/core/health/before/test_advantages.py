"""Advantages of rewards 0 and 1 before a run, and bounds that no rewards get past.

Chances of a dead group, against sums over all outcomes.
"""

from __future__ import annotations

import itertools
import math
from math import comb, prod
from statistics import fmean
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import ArrayLike

from core.algorithms.advantages import Array, Level, advantages, centred_ranks, dead_groups, group_std
from core.health.before.advantages import (
    PASS_RATES,
    advantage_table,
    dead_group,
    dead_groups_table,
    largest,
    largest_std,
    silent_step,
    smallest_std,
)
from core.health.before.view import StageView, views
from tests.core.algorithms.test_advantages import TABLE, VARIANTS
from tests.core.health.before.conftest import run_spec, view

AXES = [dict(zip(("transform", "baseline", "scale_rewards"), point, strict=True)) for point in TABLE]


def computed(seen: StageView, rewards_PK: ArrayLike, lengths_PK: ArrayLike | None = None) -> Array:
    """The advantages of single completions."""
    assert seen.grpo is not None
    lengths = seen.grpo.max_completion_length if lengths_PK is None else lengths_PK
    return advantages(rewards_PK, seen.grpo.advantage, lengths_PC=lengths)


@pytest.mark.parametrize(
    ("size", "ddof", "successes", "success", "failure"),
    [
        # K = 2, rewards 1 and 0: mean 1/2, deviations 1/2; std with divisor 2: 1/2, with divisor 1: 1/sqrt(2)
        (2, 0, 1, 1.0, -1.0),
        (2, 1, 1, 1 / math.sqrt(2), -1 / math.sqrt(2)),
        # K = 4, one right: mean 1/4, deviations 3/4 and -1/4, squares 9/16 + 3/16 = 3/4; divisor 4: std sqrt(3)/4
        (4, 0, 1, math.sqrt(3), -1 / math.sqrt(3)),
        # ... divisor 3: std 1/2
        (4, 1, 1, 1.5, -0.5),
        (8, 1, 1, 7 / math.sqrt(8), -1 / math.sqrt(8)),  # (K - 1) / sqrt(K) and -1 / sqrt(K)
        (8, 0, 4, 1.0, -1.0),
    ],
)
def test_a_table_by_hand(size: int, ddof: int, successes: int, success: float, failure: float) -> None:
    seen = view(num_generations=size, advantage={"ddof": ddof, "eps": 1e-12})
    assert seen.grpo is not None
    table = advantage_table(seen.grpo)
    assert [row.successes for row in table] == list(range(size + 1))
    assert (table[successes].success, table[successes].failure) == pytest.approx((success, failure))
    assert (table[0].success, table[0].failure, table[-1].success, table[-1].failure) == (None, 0.0, 0.0, None)


def test_a_virtual_best_makes_an_all_wrong_group_live() -> None:
    # 0, 0, 0, 0 and a virtual 1: mean 1/5, std (divisor 5) 2/5: each wrong one (0 - 1/5) / (2/5)
    seen = view(advantage={"ddof": 0, "eps": 1e-12, "virtual_best": 1.0})
    assert seen.grpo is not None
    assert advantage_table(seen.grpo)[0].failure == pytest.approx(-0.5)
    assert advantage_table(seen.grpo)[4].success == 0.0


@pytest.mark.parametrize("axes", AXES, ids=lambda axes: "-".join(axes.values()))
def test_the_table_is_of_steps_whose_groups_are_alike(axes: dict[str, Any]) -> None:
    for variant, size in itertools.product(VARIANTS, (2, 5)):
        seen = view(num_generations=size, prompts_per_step=3, advantage={**axes, **variant})
        assert seen.grpo is not None
        for row in advantage_table(seen.grpo):
            group = [1.0] * row.successes + [0.0] * (size - row.successes)
            expected = computed(seen, [group] * 3)[1].tolist()
            right, wrong = expected[: row.successes], expected[row.successes :]  # alike, but for ranks by place
            success = pytest.approx(fmean(right), abs=1e-9) if right else None
            failure = pytest.approx(fmean(wrong), abs=1e-9) if wrong else None
            assert (row.success, row.failure) == (success, failure), variant


@pytest.mark.parametrize("size", [2, 3, 4, 8, 16])
@pytest.mark.parametrize("ddof", [0, 1])
def test_the_largest_z_score_is_that_of_the_odd_one_out(size: int, ddof: int) -> None:
    seen = view(num_generations=size, advantage={"ddof": ddof, "eps": 1e-12})
    bound = math.sqrt(size - 1) if ddof == 0 else (size - 1) / math.sqrt(size)
    assert largest(seen) == pytest.approx(bound)
    odd_one = [[1.0] + [0.0] * (size - 1)]
    assert abs(computed(seen, odd_one)).max() == pytest.approx(bound)
    rewards = np.random.default_rng(size).random((2000, size))
    assert abs(computed(seen, rewards)).max() <= bound + 1e-9


@pytest.mark.parametrize("axes", AXES, ids=lambda axes: "-".join(axes.values()))
def test_no_rewards_give_a_larger_one(axes: dict[str, Any]) -> None:
    generator = np.random.default_rng(7)
    variants = [variant for variant in VARIANTS if "clip" not in variant]
    for variant, size in itertools.product(variants, (2, 4)):
        seen = view(num_generations=size, prompts_per_step=2, advantage={**axes, **variant})
        bound = largest(seen)
        if bound is None:
            continue
        for batch in batches(size, generator):
            lengths = generator.integers(1, 11, batch.shape)
            assert abs(computed(seen, batch, lengths)).max() <= bound + 1e-9, (variant, batch)


def batches(size: int, generator: np.random.Generator) -> list[Array]:
    """Random rewards, random levels, and one odd one out beside a group that adds no spread."""
    shape = (2, size)
    found = [generator.random(shape) for _ in range(8)]
    found += [generator.integers(0, 2, shape).astype(np.float64) for _ in range(8)]
    for odd, rest in ((1.0, 0.0), (0.0, 1.0)):
        groups = np.full(shape, rest)
        groups[0, 0] = odd
        found += [groups.copy()]
        groups[1] = groups[0].mean()
        found += [groups]
    return found


@pytest.mark.parametrize(
    ("how", "bound"),
    [
        # one right of 4 beside a group at its mean 1/4: deviation 3/4, squares 3/4 over 8 members: std sqrt(3/32)
        ({"scale_rewards": "batch", "ddof": 0, "eps": 1e-12}, 0.75 / math.sqrt(3 / 32)),
        ({"scale_rewards": "batch_centred", "ddof": 0, "eps": 1e-12}, 0.75 / math.sqrt(3 / 32)),
        ({"scale_rewards": "none"}, 0.75),  # one right of 4: 1 - 1/4
        ({"scale_rewards": "none", "baseline": "leave_one_out"}, 1.0),  # 1 - 0
        ({"scale_rewards": "none", "baseline": "none"}, 1.0),
        ({"scale_rewards": "none", "transform": "rank"}, 1.5),  # ranks 1 2 3 4 around 2.5
        ({"scale_rewards": "group", "ddof": 0, "eps": 1e-12, "std_floor": 1.0}, 0.75),  # 3/4 over the floor
        ({"scale_rewards": "running"}, None),
        ({"scale_rewards": "group", "baseline": "batch"}, None),
    ],
)
def test_the_largest_by_hand(how: dict[str, Any], bound: float | None) -> None:
    found = largest(view(advantage=how))
    assert found == (None if bound is None else pytest.approx(bound))


def test_shaping_widens_the_range_and_a_kl_has_none() -> None:
    plain = {"advantage": {"scale_rewards": "none"}}
    assert largest(view(**plain, overlong={"weight": 1.0})) == pytest.approx(1.5)  # 3/4 of the span -1 .. 1
    assert largest(view(**plain, kl_in="reward", kl_estimator="k1", beta=0.1)) is None
    z_score = view(advantage={"eps": 1e-12}, kl_in="reward", kl_estimator="k1", beta=0.1)
    assert largest(z_score) == pytest.approx(1.5)  # a z-score is bounded whatever the rewards


@pytest.mark.parametrize("ddof", [0, 1])
@pytest.mark.parametrize("transform", ["none", "rank"])
def test_stds_of_all_groups_lie_between_the_two(ddof: int, transform: str) -> None:
    how = {"ddof": ddof, "transform": transform}
    seen = next(views(run_spec(task="arithmetic", num_generations=4, advantage=how)))
    raw = np.array(list(itertools.product((0.0, 0.2, 1.0), repeat=4)))
    values = centred_ranks(raw, np.ones_like(raw)) if transform == "rank" else raw
    stds = group_std(values, ddof).flatten()
    live = stds[stds > 1e-9]
    most = largest_std(seen)
    assert most is not None
    assert live.max() <= most + 1e-12
    assert smallest_std(seen) <= live.min() + 1e-12
    if transform == "none":  # reached: two at each end, and one 0.2 away from three
        assert live.max() == pytest.approx(most)
        assert live.min() == pytest.approx(smallest_std(seen))


def test_candidates_that_are_not_kept_have_no_part() -> None:
    seen = view(keep_candidates=2.0, advantage={"ddof": 0, "eps": 1e-12})
    assert seen.grpo is not None
    rows = [(row.success, row.failure) for row in advantage_table(seen.grpo)]
    one = pytest.approx(1.0)
    assert rows == [(None, 0.0), (one, pytest.approx(-1.0)), (0.0, None), (0.0, None), (0.0, None)]
    rewards = [[1.0, 0.0, math.nan, math.nan]]  # as the trainer hands them on
    assert computed(seen, rewards)[0].tolist() == pytest.approx([1.0, -1.0, 0.0, 0.0])


def best(rewards: torch.Tensor, keep: int) -> torch.Tensor:
    """The best `keep` of each row, the others missing: of rewards of 0 and 1 it does not matter which of equal ones."""
    ordered = rewards.sort(dim=-1, descending=True).values
    ordered[..., keep:] = torch.nan
    return ordered


@pytest.mark.parametrize("virtual", [None, 0.0, 0.5, 1.0])
@pytest.mark.parametrize(("size", "keep"), [(2, None), (5, None), (5, 5), (5, 4), (5, 2), (5, 1)])
def test_the_chance_is_the_sum_over_all_outcomes(size: int, keep: int | None, virtual: float | None) -> None:
    outcomes = torch.tensor(list(itertools.product((0.0, 1.0), repeat=size)), dtype=torch.float64)
    dead = dead_groups(best(outcomes, keep or size), virtual)
    for rate in PASS_RATES:
        chances = [prod(rate if reward else 1 - rate for reward in group) for group in outcomes.tolist()]
        expected = sum(chance for chance, is_dead in zip(chances, dead.tolist(), strict=True) if is_dead)
        assert dead_group(rate, size, virtual, keep) == pytest.approx(expected)


def test_by_hand() -> None:
    # p = 1/2: K = 2 half of the groups, K = 8 two of 256
    assert (dead_group(0.5, 2), dead_group(0.5, 8)) == (0.5, pytest.approx(2 / 256))
    assert dead_group(0.5, 2, virtual_best=1.0) == 0.25  # only "both right" is left


def test_a_step_without_refills() -> None:
    seen = view(num_generations=2, prompts_per_step=3)
    assert seen.grpo is not None
    rows = {row.pass_rate: row for row in dead_groups_table(seen.grpo)}
    assert tuple(rows) == PASS_RATES
    assert (rows[0.5].group, rows[0.5].step, rows[0.5].attempts) == (0.5, 0.125, None)
    assert rows[0.1].group == pytest.approx(0.01 + 0.81)
    assert rows[0.1].step == pytest.approx(0.82**3)


@pytest.mark.parametrize("rate", [0.5, 0.05])
def test_refills_against_walking_through_them(rate: float) -> None:
    most, groups, size = 4, 3, 2
    seen = view(num_generations=size, prompts_per_step=groups, dynamic_sampling={"max_attempts": most})
    assert seen.grpo is not None
    (row,) = dead_groups_table(seen.grpo, (rate,))
    dead = rate**size + (1 - rate) ** size
    missing = {groups: 1.0}  # how many places are empty -> chance
    attempts = samples = 0.0
    for _ in range(most):
        attempts += sum(chance for empty, chance in missing.items() if empty)
        samples += sum(chance * empty * size for empty, chance in missing.items())
        after: dict[int, float] = {}
        for empty, chance in missing.items():
            for still in range(empty + 1):
                share = comb(empty, still) * dead**still * (1 - dead) ** (empty - still)
                after[still] = after.get(still, 0.0) + chance * share
        missing = after
    assert row.attempts == pytest.approx(attempts)
    assert row.samples == pytest.approx(samples)
    assert row.short == pytest.approx(1 - missing[0])
    assert row.empty == pytest.approx(missing[groups])


HOW: list[dict[str, Any]] = [
    {"baseline": baseline, "scale_rewards": scale, "std_floor": floor}
    for baseline, scale, floor in itertools.product(
        ("group", "leave_one_out", "batch", "running", "none"),
        ("none", "group", "batch", "batch_centred", "running"),
        (0.0, 0.1),
    )
]


@pytest.mark.parametrize("keep", [None, 2, 1])
@pytest.mark.parametrize("more", [{}, {"virtual_best": 1.0}, {"clip": 0.5, "ddof": 0}], ids=str)
@pytest.mark.parametrize("how", HOW, ids=lambda how: "-".join(map(str, how.values())))
def test_a_silent_step_is_one_whose_advantages_are_all_0(
    how: dict[str, Any], more: dict[str, Any], keep: int | None
) -> None:
    size = 2 if keep is None else 3
    seen = view(num_generations=size, prompts_per_step=2, advantage={**how, **more}, keep_candidates=keep)
    assert seen.grpo is not None
    history = Level(mean=0.3, std=0.4)  # a mean that is met by no reward
    silent = []  # how many are right in each group, and in how many ways: `best` sorts a group
    for right in itertools.product(range(size + 1), repeat=2):
        groups = torch.tensor([[1.0] * one + [0.0] * (size - one) for one in right], dtype=torch.float64)
        if not advantages(best(groups, keep or size), seen.grpo.advantage, before=history).any():
            silent.append((sum(right), prod(comb(size, one) for one in right)))
    for rate in (0.1, 0.5):
        expected = sum(ways * rate**right * (1 - rate) ** (2 * size - right) for right, ways in silent)
        found = silent_step(seen.grpo, rate)
        if found is None:
            assert more.get("virtual_best") is not None
        else:
            assert found == pytest.approx(expected)


def test_kept_candidates_are_often_all_right() -> None:
    # K = 4 of which the best 2 are kept: silent with 0, 2, 3 or 4 right: 1 - 4 / 16 at p = 1/2, for each of 2 groups
    seen = view(keep_candidates=2.0)
    assert seen.grpo is not None
    assert silent_step(seen.grpo, 0.5) == pytest.approx(0.75**2)
    (row,) = dead_groups_table(seen.grpo, (0.5,))
    assert (row.group, row.step) == (pytest.approx(0.75), pytest.approx(0.75**2))
    refilled = view(keep_candidates=2.0, dynamic_sampling={"max_attempts": 2})
    assert refilled.grpo is not None
    (row,) = dead_groups_table(refilled.grpo, (0.5,))
    assert row.samples == pytest.approx(2 * 4 * 1.75)  # each place is sampled again with chance 0.75


def test_the_bound_is_of_as_many_as_take_part_at_most() -> None:
    # The best 2 of 8, later the best 4: (K - 1) / sqrt(K) is 1.5 at 4, and 2.47 at 8.
    moving = {"start": 2.0, "end": 4.0, "steps": 10}
    seen = view(num_generations=8, keep_candidates=moving, advantage={"ddof": 1, "eps": 1e-12})
    assert largest(seen) == pytest.approx(1.5)
