"""The simulated advantages are those the trainer computes, of groups that differ."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from typing import Any

import pytest
import torch

from core.algorithms.advantages import Normaliser, advantages, dead_groups
from core.algorithms.running import Running
from core.health.simulation import normaliser
from core.health.simulation.normaliser import Cells, Level, all_equal, group_by_group
from core.spec import AdvantageSpec
from tests.core.health.foresight.test_advantage_values import AXES, VARIANTS

LENGTH = 7
LEVELS = (0.0, 0.1 + 0.2, 0.3, 0.7, 1.0)  # two of them are equal within the tolerance


def both(how: AdvantageSpec, groups: list[Cells], before: Level | None) -> tuple[list[float], list[float]]:
    """The advantages of all completions: simulated, and on tensors."""
    rewards = [[reward for reward, count in cells for _ in range(count)] for cells in groups]
    widest = max(map(len, rewards))
    rewards_PK = torch.tensor([row + [math.nan] * (widest - len(row)) for row in rewards], dtype=torch.float64)
    running = None if before is None else Running(count=3, weight=0.5, mean=before.mean / 2, variance=before.std**2 / 2)
    on_tensors = advantages(
        rewards_PK,
        Normaliser(**how.model_dump(exclude={"running_decay"})),
        running=running,
        lengths_PK=torch.full(rewards_PK.shape, LENGTH),
    )
    found = normaliser.advantages(groups, how, length=LENGTH, before=before)
    simulated = [
        advantage
        for cells, row in zip(groups, found, strict=True)
        for (_, count), advantage in zip(cells, row, strict=True)
        for _ in range(count)
    ]
    return simulated, on_tensors[~rewards_PK.isnan()].tolist()


@pytest.mark.parametrize("axes", AXES, ids=lambda axes: "-".join(axes.values()))
def test_it_is_what_the_trainer_computes(axes: dict[str, Any]) -> None:
    generator = random.Random(0)
    for variant, trial in itertools.product(VARIANTS, range(6)):
        how = AdvantageSpec(**{**axes, **variant})
        drawn = [generator.choices(LEVELS[: 2 + trial % 4], k=generator.choice((1, 2, 4, 5))) for _ in range(3)]
        groups: list[Cells] = [sorted(Counter(rewards).items()) for rewards in drawn]
        before = (None, Level(mean=0.4, std=0.25), Level(mean=0.5, std=0.0))[trial % 3]
        simulated, on_tensors = both(how, groups, before)
        assert simulated == pytest.approx(on_tensors, abs=1e-9), (variant, drawn, before)


@pytest.mark.parametrize(
    ("ddof", "cells", "expected"),
    [
        # one right of two: mean 1/2, deviations 1/2; std with divisor 2: 1/2, with divisor 1: 1/sqrt(2)
        (0, ((0.0, 1), (1.0, 1)), [-1.0, 1.0]),
        (1, ((0.0, 1), (1.0, 1)), [-1 / math.sqrt(2), 1 / math.sqrt(2)]),
        # one right of four, divisor 3: std 1/2, deviations -1/4 and 3/4
        (1, ((0.0, 3), (1.0, 1)), [-0.5, 1.5]),
        (0, ((0.0, 4), (1.0, 0)), [0.0, 0.0]),
    ],
)
def test_by_hand(ddof: Any, cells: Cells, expected: list[float]) -> None:
    (found,) = normaliser.advantages([cells], AdvantageSpec(ddof=ddof, eps=1e-12))
    assert found == pytest.approx(expected)


def test_dead_by_the_same_rule() -> None:
    for rewards in ([0.3, 0.1 + 0.2], [0.3, 0.3000001], [1e12, 1e12 + 1], [0.5], [0.0, 1.0], [2.0, 2.0, 2.0]):
        alive = not all_equal(rewards, [1.0] * len(rewards))
        assert alive != bool(dead_groups(torch.tensor([rewards], dtype=torch.float64))[0]), rewards


def test_what_depends_on_the_other_groups() -> None:
    one: Cells = ((0.0, 1), (1.0, 1))
    for axes in AXES:
        how = AdvantageSpec(**axes)
        level = Level(mean=0.5, std=0.5)
        alone = normaliser.advantages([one, one], how, before=level)[0]
        beside = normaliser.advantages([one, ((0.0, 0), (1.0, 2))], how, before=level)[0]
        assert group_by_group(how) == (alone == pytest.approx(beside)) or axes["transform"] == "rank", axes
