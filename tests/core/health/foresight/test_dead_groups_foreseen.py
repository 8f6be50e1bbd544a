"""Chances of a dead group, against sums over all outcomes."""

from __future__ import annotations

import itertools
from math import comb, prod
from typing import Any

import pytest
import torch

from core.algorithms.advantages import Level, advantages, dead_groups
from core.health.before.advantages import PASS_RATES, dead_group, dead_groups_table, silent_step
from tests.core.health.foresight.conftest import view


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
    for rate in (0.1, 0.5):
        expected = 0.0
        for outcome in itertools.product((0.0, 1.0), repeat=2 * size):
            rewards = best(torch.tensor(outcome, dtype=torch.float64).view(2, size), keep or size)
            if not advantages(rewards, seen.grpo.advantage, before=history).any():
                expected += prod(rate if reward else 1 - rate for reward in outcome)
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
