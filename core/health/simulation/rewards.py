"""What a prompt's completions earn: reward levels, and for each prompt of a population the chance of each level.

Here: a population out of pass rates. What a run earned becomes one in `measured`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean


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
    said = source or f"pass rate {', '.join(f'{rate:g}' for rate in rates)}"
    return RewardModel(levels=(0.0, 1.0), prompts=tuple((1.0 - rate, rate) for rate in rates), source=said)
