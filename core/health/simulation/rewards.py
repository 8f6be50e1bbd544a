"""What a prompt's completions earn: reward levels, and for each prompt of a population the chance of each level.

A population comes out of pass rates, or out of what a run earned, whose groups are samples of it. Two completions of a
group are no more alike than its prompt makes them: how much more often they earn the same than completions of different
prompts do is the one number that says how far prompts differ (of rewards 0 and 1: the correlation of
core.health.dataset). A Dirichlet distribution with that likeness is taken for the rest.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from core.health.dataset import MOST_ALIKE


@dataclass(frozen=True, kw_only=True, slots=True)
class RewardModel:
    """Prompts that are equally often drawn; `prompts[j][l]` is the chance that a completion of j earns `levels[l]`."""

    levels: tuple[float, ...]  # ascending
    prompts: tuple[tuple[float, ...], ...]
    source: str  # in words: pass rates, or what was read
    notes: tuple[str, ...] = ()

    @property
    def mean(self) -> float:
        """The expected reward."""
        return fmean(self.expected(chances) for chances in self.prompts)

    @property
    def std(self) -> float:
        """The standard deviation over completions of all prompts."""
        mean = self.mean
        return math.sqrt(
            fmean(
                sum(chance * (level - mean) ** 2 for chance, level in zip(chances, self.levels, strict=True))
                for chances in self.prompts
            )
        )

    def expected(self, chances: Sequence[float]) -> float:
        """The expected reward of one prompt."""
        return sum(chance * level for chance, level in zip(chances, self.levels, strict=True))

    def gradient(self, chances: Sequence[float]) -> tuple[float, ...]:
        """The gradient of a prompt's expected reward in the logits of the levels: pi_l * (r_l - J)."""
        expected = self.expected(chances)
        return tuple(chance * (level - expected) for chance, level in zip(chances, self.levels, strict=True))


def of_pass_rates(rates: Sequence[float], source: str = "") -> RewardModel:
    """Rewards of 1 and 0; a prompt for each pass rate, all equally frequent. Raises ValueError outside 0 to 1."""
    if not rates or not all(0.0 <= rate <= 1.0 for rate in rates):
        raise ValueError(f"got pass rates {list(rates)}; allowed: one or more numbers from 0 to 1")
    text = source or f"pass rate {', '.join(f'{rate:g}' for rate in rates)}"
    return RewardModel(levels=(0.0, 1.0), prompts=tuple((1.0 - rate, rate) for rate in rates), source=text)


MOST_LEVELS = 6  # more different rewards are put together by equal shares
_PROMPTS = {2: 64}  # by levels; else
_MANY = 256
_SAME = 1e-9
_RAKES = 20


def measured(groups: Sequence[Sequence[float]], source: str, *, seed: int = 0) -> RewardModel:
    """The population. groups: the rewards that each prompt's completions earned, none of them empty.

    Raises ValueError where there is no reward at all.
    """
    if not any(groups):
        raise ValueError(f"{source} has no rewards")
    levels = _levels([reward for group in groups for reward in group])
    counts = [_counts(group, levels) for group in groups if group]
    total = sum(map(sum, counts))
    mean = [sum(count[index] for count in counts) / total for index in range(len(levels))]
    alike, notes = likeness(counts), []
    if alike is None:
        notes.append("no two completions are known to share a prompt: all prompts are taken to be alike")
    if len({reward for group in groups for reward in group}) > len(levels):
        notes.append(f"rewards are put together in {len(levels)} levels")
    prompts = _drawn(mean, alike or 0.0, random.Random(seed))
    return RewardModel(levels=tuple(levels), prompts=prompts, source=source, notes=tuple(notes))


def likeness(counts: Sequence[Sequence[int]]) -> float | None:
    """How much prompts differ: 0 where all are alike, 1 where a prompt always earns the same; None where unknown.

    (P(two of one prompt agree) - P(two of different prompts agree)) / (1 - the latter), from all pairs.
    """
    pairs = [sum(c * (c - 1) for c in count) / (n * (n - 1)) for count in counts if (n := sum(count)) > 1]
    if not pairs or len(counts) < 2:
        return None
    shares = [[c / sum(count) for c in count] for count in counts]
    totals = [sum(column) for column in zip(*shares, strict=True)]
    own = sum(share * share for prompt in shares for share in prompt)
    across = (sum(total * total for total in totals) - own) / (len(counts) * (len(counts) - 1))
    if across >= 1.0:
        return 0.0
    return float(min(max((fmean(pairs) - across) / (1.0 - across), 0.0), MOST_ALIKE))


def _levels(rewards: Sequence[float]) -> list[float]:
    """The different rewards; where there are many, the means of equal shares of them."""
    counts = sorted(Counter(rewards).items())
    if len(counts) <= MOST_LEVELS:
        return [reward for reward, _ in counts]
    levels: list[float] = []
    share, start, before = len(rewards) / MOST_LEVELS, 0, 0
    for index, (_, count) in enumerate(counts):
        before += count
        if before >= share * (len(levels) + 1) - _SAME or index == len(counts) - 1:
            part = counts[start : index + 1]
            levels.append(sum(reward * n for reward, n in part) / sum(n for _, n in part))
            start = index + 1
    return levels


def _counts(group: Sequence[float], levels: Sequence[float]) -> list[int]:
    """How many of a group are nearest to each level."""
    nearest = Counter(min(range(len(levels)), key=lambda index: abs(levels[index] - reward)) for reward in group)
    return [nearest[index] for index in range(len(levels))]


def _drawn(mean: Sequence[float], alike: float, random_: random.Random) -> tuple[tuple[float, ...], ...]:
    """Prompts of the Dirichlet distribution; of two levels its quantiles, which leave less to chance."""
    if alike <= 0.0:
        return (tuple(mean),)
    strength = 1.0 / alike - 1.0
    size = _PROMPTS.get(len(mean), _MANY)
    if len(mean) > 2:
        parts = [share * strength for share in mean]
        return _raked([_dirichlet(parts, random_) for _ in range(size)], mean)
    fine = sorted(random_.betavariate(mean[1] * strength, mean[0] * strength) for _ in range(size * size))
    rates = [fmean(fine[start : start + size]) for start in range(0, size * size, size)]
    return tuple((1.0 - rate, rate) for rate in rates)


def _dirichlet(strengths: Sequence[float], random_: random.Random) -> tuple[float, ...]:
    parts = [random_.gammavariate(strength, 1.0) for strength in strengths]
    total = sum(parts)
    if total <= 0.0:  # every part is too small for a float: one level takes all
        chosen = random_.choices(range(len(strengths)), weights=strengths)[0]
        return tuple(float(index == chosen) for index in range(len(strengths)))
    return tuple(part / total for part in parts)


def _raked(prompts: Sequence[Sequence[float]], mean: Sequence[float]) -> tuple[tuple[float, ...], ...]:
    """The prompts with the chances of each level scaled until their mean is the one that was measured."""
    rows = [list(prompt) for prompt in prompts]
    for _ in range(_RAKES):
        factors = [want / max(fmean(column), _SAME) for want, column in zip(mean, zip(*rows, strict=True), strict=True)]
        scaled = [[part * factor for part, factor in zip(prompt, factors, strict=True)] for prompt in rows]
        rows = [[part / sum(prompt) for part in prompt] for prompt in scaled]
    return tuple(map(tuple, rows))
