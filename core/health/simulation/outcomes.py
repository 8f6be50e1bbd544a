"""A group by how many of its completions earned each level: its advantages, its gradient, and averages over groups.

Averages are over groups, and over steps of the same weights, exact or drawn. Shape suffix: L levels of reward. Lengths
of gradients are squared throughout.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache, lru_cache
from math import comb
from typing import Any, TypeVar

from core.config import GrpoStage
from core.health.before.advantages import kept
from core.health.simulation.rewards import RewardModel

Counts = tuple[int, ...]  # L: completions of a group that earned each level
_REMEMBERED = 4096  # steps


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What a group comes to. Its gradient in the logits of the levels is (pull - sum(pull) * chances) / K."""

    pull: tuple[float, ...]  # L: the sum of the advantages of each level's completions
    squares: float  # the sum of all squared advantages
    live: bool  # its rewards differ; the virtual best counts
    useful: bool  # a step may learn from it

    @property
    def silent(self) -> bool:
        """Every advantage is 0."""
        return self.squares == 0.0

    def gradient(self, chances: Sequence[float]) -> list[float]:
        """Its gradient for a prompt with these chances of the levels, times K."""
        total = sum(self.pull)
        if abs(total) <= 1e-12 * sum(map(abs, self.pull)):
            return list(self.pull)
        return [pull - total * chance for pull, chance in zip(self.pull, chances, strict=True)]


def all_counts(size: int, levels: int) -> Iterator[Counts]:
    """Every way in which `size` completions can earn so many levels."""
    if levels == 1:
        yield (size,)
        return
    for first in range(size + 1):
        for rest in all_counts(size - first, levels - 1):
            yield (first, *rest)


def how_many(size: int, levels: int) -> int:
    """As many does `all_counts` give."""
    return comb(size + levels - 1, levels - 1)


class Groups:
    """The groups of one setting, each worked out once."""

    def __init__(self, stage: GrpoStage, rewards: RewardModel) -> None:
        self.stage, self.rewards = stage, rewards
        self.levels = rewards.levels
        self._outcomes: dict[Counts, Outcome] = {}
        self._signal = cache(lambda counts: self._signals(self._kept([counts]))[0])
        self.together = lru_cache(_REMEMBERED)(self._together)

    def live(self, counts: Counts) -> bool:
        """Whether the rewards that take part differ; the virtual best counts."""
        return self._signal(counts)[0]

    def useful(self, counts: Counts) -> bool:
        """Whether a step may learn from it: dynamic sampling wants it live, positive_reward a good one."""
        return self._signal(counts)[1]

    def apart(self, groups: Sequence[Counts]) -> Mapping[Counts, Outcome]:
        """Each group by itself, where no other group of the step has a part in its advantages."""
        new = [counts for counts in dict.fromkeys(groups) if counts not in self._outcomes]
        self._outcomes |= zip(new, self._together(tuple(new)) if new else [], strict=True)
        return self._outcomes

    def _together(self, groups: tuple[Counts, ...]) -> list[Outcome]:
        """The groups of one step, by their common statistics."""
        from core.algorithms.advantages import Level, advantages

        stage, kept_PL = self.stage, self._kept(groups)
        advantages_PL: list[list[float]] = advantages(
            [self.levels] * len(groups),
            stage.advantage,
            counts_PC=kept_PL,
            lengths_PC=stage.max_completion_length,
            before=Level(mean=self.rewards.mean, std=self.rewards.std),
        ).tolist()
        return [
            Outcome(
                pull=tuple(count * advantage for count, advantage in zip(kept, row, strict=True)),
                squares=sum(count * advantage**2 for count, advantage in zip(kept, row, strict=True)),
                live=live,
                useful=useful,
            )
            for kept, row, (live, useful) in zip(kept_PL, advantages_PL, self._signals(kept_PL), strict=True)
        ]

    def _kept(self, groups: Sequence[Counts]) -> list[list[float]]:
        """(P, L): of each level how many completions take part."""
        from core.algorithms.candidates import kept_counts

        counts_PL: list[list[float]] = kept_counts(
            [self.levels] * len(groups), kept(self.stage), counts_PC=groups
        ).tolist()
        return counts_PL

    def _signals(self, kept_PL: Sequence[Sequence[float]]) -> list[tuple[bool, bool]]:
        """Whether each group is live, and whether a step may learn from it."""
        from core.algorithms.advantages import dead_groups

        stage, wanted = self.stage, self.stage.positive_reward
        dead = dead_groups([self.levels] * len(kept_PL), stage.advantage.virtual_best, counts_PC=kept_PL).tolist()
        paid = [
            wanted is None or any(count and level >= wanted for level, count in zip(self.levels, kept, strict=True))
            for kept in kept_PL
        ]
        return [
            (not is_dead, good and (stage.dynamic_sampling is None or not is_dead))
            for is_dead, good in zip(dead, paid, strict=True)
        ]


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
