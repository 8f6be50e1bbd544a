"""What rules share: chances under a normal law, and a straight line through steps.

Not here: intervals over seeds, which are small samples (core.health.statistics).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from core.health.finding import StepTable

ENOUGH = 8  # points: the normal law is too narrow for fewer
HUGE = 1e100  # of a number's size: no training computes in such, and sums of their squares overflow


@dataclass(frozen=True, kw_only=True, slots=True)
class Trend:
    """A slope per step and its standard error, by least squares; `z` is their ratio."""

    slope: float
    se: float

    @property
    def z(self) -> float:
        """The slope in standard errors, signed; infinite for points that lie on a rising line."""
        return self.slope / self.se if self.se > 0 else math.copysign(math.inf, self.slope) if self.slope else 0.0


def series(table: StepTable, metric: str) -> list[tuple[float, float]]:
    """(step, value) of the rows that have a finite value below HUGE, in their order."""
    return [
        (float(row.get("step") or 0), float(value))
        for row in table
        if (value := row.get(metric)) is not None and abs(value) < HUGE
    ]


def trend(points: Sequence[tuple[float, float]]) -> Trend | None:
    """The line through (step, value); None for fewer than ENOUGH points, where all are of one step, or one is HUGE.

    Points are taken to be independent given their step: the batches of a run are, its weights hardly.
    """
    if len(points) < ENOUGH or not all(abs(x) < HUGE and abs(y) < HUGE for x, y in points):
        return None
    x_mean, y_mean = fmean(x for x, _ in points), fmean(y for _, y in points)
    spread = math.fsum((x - x_mean) ** 2 for x, _ in points)
    if spread == 0:
        return None
    slope = math.fsum((x - x_mean) * (y - y_mean) for x, y in points) / spread
    left = math.fsum((y - y_mean - slope * (x - x_mean)) ** 2 for x, y in points)
    return Trend(slope=slope, se=math.sqrt(left / (len(points) - 2) / spread))


def chance_above(z: float) -> float:
    """P(Z >= z) of a standard normal: the one-sided p of so many standard errors."""
    return 0.5 * math.erfc(z / math.sqrt(2.0))


def chance_beyond(z: float) -> float:
    """P(|Z| >= |z|): the two-sided p."""
    return math.erfc(abs(z) / math.sqrt(2.0))


def shown_p(p: float) -> str:
    """The p as a sentence has it: `p = 3e-05`. Below 1e-12 no law is that exact."""
    return f"p = {p:.0e}" if p >= 1e-12 else "p < 1e-12"
