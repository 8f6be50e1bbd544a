"""A group by how many of its completions earned each level: its advantages, and what they make of its gradient.

Shape suffix: L levels of reward.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from math import comb

from core.config import GrpoStage
from core.health.foresight.advantage_values import kept
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
