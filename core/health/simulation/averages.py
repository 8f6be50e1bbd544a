"""What is averaged, over groups and over steps of the same weights; and the draws that are averaged over.

Shape suffix: L levels of reward. Lengths of gradients are squared throughout.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from core.health.simulation.outcomes import Counts, Outcome
from core.health.simulation.rewards import RewardModel


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupMeans:
    """Over sampled groups; from `live` on those that no step may learn from count as 0.

    vector: the gradient in the logits of the levels. across: what lies among the answers that earn the same.
    """

    dead: float
    useful: float
    live: float
    silent: float  # every advantage is 0
    vector: tuple[float, ...]  # L
    squares: float  # of `vector`'s length
    across: float


@dataclass(frozen=True, kw_only=True, slots=True)
class StepMeans:
    """Over steps. A step's gradient is the mean over the groups that it learns from; 0 where there are none.

    together: squared length of `vector` where all prompts share one policy; apart: where each has its own.
    """

    completions: float  # sampled, refills included
    dead: float  # of sampled groups
    live: float  # groups that are learned from and whose rewards differ
    silent: float  # every advantage of the step is 0
    vector: tuple[float, ...]  # L
    together: float
    apart: float
    across: float


Means = TypeVar("Means", GroupMeans, StepMeans)


def mean_of(records: Sequence[Means]) -> Means:
    """The mean of each field."""

    def mean(values: Sequence[Any]) -> Any:
        if isinstance(values[0], tuple):
            return tuple(sum(column) / len(values) for column in zip(*values, strict=True))
        return sum(values) / len(values)

    kind = type(records[0])
    return kind(**{field.name: mean([getattr(one, field.name) for one in records]) for field in fields(kind)})


def of_group(outcome: Outcome, chances: Sequence[float], size: int) -> GroupMeans:
    """One group of `size` completions, of a prompt with these chances of the levels."""
    if not outcome.useful:
        return GroupMeans(
            dead=not outcome.live,
            useful=0.0,
            live=0.0,
            silent=0.0,
            vector=(0.0,) * len(chances),
            squares=0.0,
            across=0.0,
        )
    vector = tuple(part / size for part in outcome.gradient(chances))
    return GroupMeans(
        dead=not outcome.live,
        useful=1.0,
        live=outcome.live,
        silent=outcome.silent,
        vector=vector,
        squares=sum(part * part for part in vector),
        across=outcome.squares / size**2,
    )


class Population:
    """Draws groups of prompts that are all equally frequent."""

    def __init__(self, rewards: RewardModel, size: int, seed: int) -> None:
        self._random, self._prompts, self._size = random.Random(seed), rewards.prompts, size
        self._levels = range(len(rewards.levels))

    def draw(self) -> tuple[Sequence[float], Counts]:
        """A prompt's chances of the levels, and how many of its group's completions earned each."""
        chances = self._prompts[0] if len(self._prompts) == 1 else self._random.choice(self._prompts)
        earned = self._random.choices(self._levels, weights=chances, k=self._size)
        return chances, tuple(map(earned.count, self._levels))
