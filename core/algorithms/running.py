"""Running mean and variance of rewards over steps: what the `running` baseline and scale divide by.

Exponential moving averages of each step's mean and variance. A plain average started at 0 is too small for the first
1 / (1 - decay) steps; `weight` is the same average of the constant 1, and dividing by it removes exactly that.
A step uses the state from BEFORE it. What is NOT here: when it is updated and where it is saved.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

from torch import Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class Running:
    """Raw averages after `count` updates; `weight` is 1 - decay ** count where the decay never changed."""

    count: int = 0
    weight: float = 0.0
    mean: float = 0.0
    variance: float = 0.0

    @property
    def corrected_mean(self) -> float:
        """The bias-corrected mean: mean / weight. Raises ZeroDivisionError before the first update."""
        return self.mean / self.weight

    @property
    def corrected_std(self) -> float:
        """The root of the bias-corrected variance. Raises ZeroDivisionError before the first update."""
        return sqrt(self.variance / self.weight)


def updated(running: Running, rewards_PK: Tensor, decay: float) -> Running:
    """The state after one more step: x <- decay * x + (1 - decay) * batch, for mean and variance (divisor n).

    The batch's variance is taken about the mean of the steps before it (the first one's about its own): the spread
    between steps belongs to it. With one prompt a step, the variance inside each step would be far too small, and every
    advantage would end at its clip; document 003 has it that way.

    rewards_PK: (P, K), NaN where missing, in the form in which they are centred (after a rank transform, if any).
    A step without a present reward changes nothing.
    """
    present = rewards_PK.double()[~rewards_PK.isnan()]
    if not present.numel():
        return running
    level = running.corrected_mean if running.count else float(present.mean())
    return Running(
        count=running.count + 1,
        weight=decay * running.weight + (1.0 - decay),
        mean=decay * running.mean + (1.0 - decay) * float(present.mean()),
        variance=decay * running.variance + (1.0 - decay) * float((present - level).square().mean()),
    )
