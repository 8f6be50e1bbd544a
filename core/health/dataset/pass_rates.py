"""How often a group would teach nothing, when prompts differ in how often they are answered well.

Pass rates over prompts are taken to be a beta distribution, fitted by moments to how many of each prompt's samples were
good. Not here: one pass rate for all prompts (core.health.foresight.dead_groups), which this falls back to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from core.health.foresight.dead_groups import dead_group

SIZES = (2, 4, 8, 16, 32, 64, 128)
ENOUGH = 0.5  # of the groups dead at most
_MOST_ALIKE = 0.999  # a likeness of 1 would be prompts that are always or never answered well


@dataclass(frozen=True, kw_only=True, slots=True)
class PassRates:
    """Beta by its mean and the correlation of two samples of one prompt: 0 where all prompts have one pass rate."""

    mean: float
    correlation: float

    def dead(self, size: int) -> float:
        """The chance that all samples of a group of this size are good, or all are bad."""
        if self.correlation <= 0:
            return dead_group(self.mean, size)
        strength = 1.0 / self.correlation - 1.0
        return all_of(self.mean * strength, strength, size) + all_of((1.0 - self.mean) * strength, strength, size)

    def size_needed(self, enough: float = ENOUGH) -> int | None:
        """The smallest of SIZES at which no more than this share of the groups is dead; None where none is enough."""
        return next((size for size in SIZES if self.dead(size) <= enough), None)


def all_of(part: float, strength: float, size: int) -> float:
    """E[p^size] of a beta distribution: the product of (a + j) / (a + b + j)."""
    chance = 1.0
    for index in range(size):
        chance *= (part + index) / (strength + index)
    return chance


def fitted(counts: Sequence[tuple[int, int]]) -> PassRates | None:
    """The pass rates of prompts of which (good, samples) were seen; None where all samples were good, or all bad.

    The mean square of a prompt's pass rate is estimated without bias from pairs of its own samples, the square of the
    mean from pairs of different prompts' samples.
    """
    seen = [(good, n) for good, n in counts if n > 0]
    total, good = sum(n for _, n in seen), sum(good for good, _ in seen)
    if not 0 < good < total:
        return None
    mean = good / total
    pairs = [good * (good - 1) / (n * (n - 1)) for good, n in seen if n > 1]
    rates = [good / n for good, n in seen]
    if not pairs or len(rates) < 2:
        return PassRates(mean=mean, correlation=0.0)
    across = (sum(rates) ** 2 - sum(rate * rate for rate in rates)) / (len(rates) * (len(rates) - 1))
    correlation = (sum(pairs) / len(pairs) - across) / (mean * (1.0 - mean))
    return PassRates(mean=mean, correlation=min(max(correlation, 0.0), _MOST_ALIKE))


def highest_unseen(samples: int, confidence: float = 0.95) -> float:
    """The largest rate at which seeing none among so many samples is still as likely as 1 - confidence."""
    return float(1.0 - (1.0 - confidence) ** (1.0 / samples))
