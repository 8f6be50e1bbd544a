"""What a run earned becomes a population of prompts: its mean is the run's, its likeness too."""

from __future__ import annotations

import random

import pytest

from core.health.dataset import fitted
from core.health.simulation.rewards import MOST_LEVELS, likeness, measured


def binary(rates: list[float], size: int, seed: int = 0) -> list[list[float]]:
    generator = random.Random(seed)
    return [[float(generator.random() < rate) for _ in range(size)] for rate in rates]


def test_likeness_by_hand() -> None:
    # two groups of two: 11 and 00. Within: both agree, 1. Across: never, 0. So (1 - 0) / (1 - 0), kept below 1.
    assert likeness([[0, 2], [2, 0]]) == pytest.approx(0.999)
    # 10 and 10: within 0, across 1/2: below 0 is 0
    assert likeness([[1, 1], [1, 1]]) == 0.0
    # 11, 10: within 1/2, across 1/2
    assert likeness([[0, 2], [1, 1]]) == 0.0
    assert likeness([[0, 1], [1, 0]]) is None


def test_of_two_rewards_it_is_the_correlation_of_pass_rates() -> None:
    groups = binary([0.1, 0.2, 0.5, 0.9] * 10, 6)
    counts = [(int(sum(group)), len(group)) for group in groups]
    rates = fitted(counts)
    assert rates is not None
    assert likeness([[n - good, good] for good, n in counts]) == pytest.approx(
        rates.correlation, rel=0.03
    )  # its mean's square is of pairs too


def test_the_population_has_the_mean_and_the_likeness_of_the_run() -> None:
    groups = binary([0.1, 0.9] * 200, 4)
    found = measured(groups, "a run")
    rewards = [reward for group in groups for reward in group]
    assert (found.levels, found.source, len(found.prompts)) == ((0.0, 1.0), "a run", 64)
    assert found.mean == pytest.approx(sum(rewards) / len(rewards), abs=0.02)
    rates = [right for _, right in found.prompts]
    spread = sum((rate - found.mean) ** 2 for rate in rates) / len(rates)
    assert spread == pytest.approx(0.16, abs=0.03)  # of 0.1 and 0.9


def test_levels_between_keep_their_shares_exactly() -> None:
    generator = random.Random(1)
    groups = [generator.choices((0.0, 0.2, 1.0), weights=(kind, 1, 2), k=3) for kind in (1, 8) * 60]
    found = measured(groups, "")
    for index, level in enumerate(found.levels):
        share = sum(group.count(level) for group in groups) / 360
        assert sum(chances[index] for chances in found.prompts) / len(found.prompts) == pytest.approx(share, abs=1e-3)
    assert measured(groups, "") == found


def test_prompts_that_are_alike_are_one() -> None:
    assert len(measured([[0.0, 1.0], [0.0, 1.0]], "").prompts) == 1


def test_rewards_of_no_known_prompts() -> None:
    found = measured([[0.0], [1.0], [1.0]], "")
    assert found.prompts == (pytest.approx((1 / 3, 2 / 3)),)
    assert "alike" in found.notes[0]


def test_many_rewards_are_put_together() -> None:
    generator = random.Random(2)
    groups = [[generator.random() for _ in range(4)] for _ in range(50)]
    found = measured(groups, "")
    assert len(found.levels) == MOST_LEVELS
    assert list(found.levels) == sorted(found.levels)
    assert found.mean == pytest.approx(sum(map(sum, groups)) / 200, abs=0.01)
    assert found.notes == ("rewards are put together in 6 levels",)


def test_one_reward_only_and_none_at_all() -> None:
    assert measured([[0.5, 0.5]], "").levels == (0.5,)
    with pytest.raises(ValueError, match="no rewards"):
        measured([[], []], "a run")
