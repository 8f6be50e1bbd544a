"""A group by how many of its completions earned each level: its advantages, and what they make of its gradient.

Shape suffix: L levels of reward.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from math import comb

from core.health.foresight.advantage_values import kept
from core.health.simulation.normaliser import Cells, Level, advantages, all_equal
from core.health.simulation.rewards import RewardModel
from core.spec import GrpoStage

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
        self.stage, self.levels = stage, rewards.levels
        self.before = Level(mean=rewards.mean, std=rewards.std)
        self._keep = kept(stage)
        self.outcome = cache(self._outcome)
        self.cells = cache(self._cells)
        self.live = cache(self._live)
        self.useful = cache(self._useful)
        self.together = lru_cache(_REMEMBERED)(self._together)

    def _cells(self, counts: Counts) -> Cells:
        """Levels of the best completions that take part, and how many of each."""
        left, found = self._keep, []
        for level, count in zip(reversed(self.levels), reversed(counts), strict=True):
            taken = min(count, left)
            left -= taken
            found.append((level, taken))
        return tuple(reversed(found))

    def _live(self, counts: Counts) -> bool:
        """Whether the rewards that take part differ; the virtual best counts."""
        cells, virtual = self.cells(counts), self.stage.advantage.virtual_best
        rewards, many = [reward for reward, _ in cells], [count for _, count in cells]
        if virtual is not None:
            rewards, many = [*rewards, virtual], [*many, 1]
        return not all_equal(rewards, many)

    def _useful(self, counts: Counts) -> bool:
        """Whether a step may learn from it: dynamic sampling wants it live, positive_reward a good one."""
        wanted = self.stage.positive_reward
        if wanted is not None and not any(count and reward >= wanted for reward, count in self.cells(counts)):
            return False
        return self.stage.dynamic_sampling is None or self.live(counts)

    def _together(self, groups: tuple[Counts, ...]) -> list[Outcome]:
        """The groups of one step, by their common statistics."""
        how, length = self.stage.advantage, self.stage.max_completion_length
        cells = [self.cells(counts) for counts in groups]
        found = advantages(cells, how, length=length, before=self.before)
        return [self._made(counts, one, row) for counts, one, row in zip(groups, cells, found, strict=True)]

    def _outcome(self, counts: Counts) -> Outcome:
        """A group by itself, where no other group of the step has a part in its advantages."""
        return self._together((counts,))[0]

    def _made(self, counts: Counts, cells: Cells, row: Sequence[float]) -> Outcome:
        pull = tuple(count * advantage for (_, count), advantage in zip(cells, row, strict=True))
        squares = sum(count * advantage**2 for (_, count), advantage in zip(cells, row, strict=True))
        return Outcome(pull=pull, squares=squares, live=self.live(counts), useful=self.useful(counts))
