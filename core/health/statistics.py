"""Means and their t intervals, chances under a normal law, and a straight line through steps, in plain Python.

What is here: pure functions from numbers to `Estimate`, `Difference` and `Trend`. What is not: which runs the numbers
come from, and what is said about them (grpoctl.analysis).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist, fmean
from typing import Literal

from core.health.finding import StepTable

Interval = tuple[float, float]
Method = Literal["paired", "welch", "none"]

CONFIDENCE = 0.95
NORMAL_DF = 1e8  # degrees of freedom from which on Student's t is the normal law, to nine digits
POWER = 2.8  # standard errors: a true change of so many is found in 4 of 5 tries (1.96 + 0.84)
ENOUGH = 8  # points of a line: the normal law is too narrow for fewer
TOLD = 100.0  # standard errors that are told: beyond them points lie on a line but for their rounding
HUGE = 1e100  # of a number's size: no training computes in such, and sums of their squares overflow


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """A mean over `n` seeds; `interval` is None where one value says nothing about its own noise."""

    mean: float
    interval: Interval | None
    n: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """B minus A. `method` says where the interval comes from; "none" goes with an interval of None."""

    mean: float
    interval: Interval | None
    method: Method


def mean(values: Sequence[float]) -> float:
    """The arithmetic mean. Raises ValueError for no values."""
    if not values:
        raise ValueError("the mean of no values does not exist")
    return math.fsum(values) / len(values)


def sample_sd(values: Sequence[float]) -> float | None:
    """The standard deviation with ddof 1; None for fewer than two values."""
    if len(values) < 2:
        return None
    if min(values) == max(values):
        return 0.0  # the rounding of the mean must not look like noise
    centre = mean(values)
    return math.sqrt(math.fsum((value - centre) ** 2 for value in values) / (len(values) - 1))


def clustered_se(values: Sequence[float], clusters: Sequence[str]) -> float | None:
    """The standard error of a mean whose values are independent between clusters only; None for one cluster.

    sqrt(C / (C - 1) * sum over clusters of (sum of x - mean)^2) / N, of N values in C clusters (Liang and Zeger 1986);
    with one value a cluster it is sd / sqrt(N). Its degrees of freedom are `cluster_df`.
    """
    centre = mean(values)
    sums: dict[str, float] = {}
    for cluster, value in zip(clusters, values, strict=True):
        sums[cluster] = sums.get(cluster, 0.0) + value - centre
    many = len(sums)
    if many < 2:
        return None
    return math.sqrt(many / (many - 1) * math.fsum(total**2 for total in sums.values())) / len(values)


def cluster_df(sizes: Sequence[int]) -> float:
    """The degrees of freedom of such an error: (sum of sizes)^2 / (sum of their squares) - 1, C - 1 of equal ones.

    A few large clusters among many small ones are worth no more than those few.
    """
    return sum(sizes) ** 2 / sum(size**2 for size in sizes) - 1


def mean_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Estimate:
    """The mean with mean +- t(n-1) * sd / sqrt(n); no interval for one value. Raises ValueError for none."""
    centre, sd, n = mean(values), sample_sd(values), len(values)
    if sd is None:
        return Estimate(mean=centre, interval=None, n=n)
    return Estimate(mean=centre, interval=t_interval(centre, [(sd**2 / n, n - 1)], confidence), n=n)


def clipped(interval: Interval, low: float | None, high: float | None) -> Interval:
    """The interval without what lies below `low` or above `high`, the least and the most that is possible; None: open.

    An interval that lies wholly outside (an estimate can, by rounding) becomes the limit next to it.
    """
    least, most = -math.inf if low is None else low, math.inf if high is None else high
    return (min(max(interval[0], least), most), max(min(interval[1], most), least))


def wilson(share: float, n: float, confidence: float = CONFIDENCE) -> Interval:
    """The interval of a share of `n` independent yes-or-no answers (Wilson 1927); inside [0, 1], also at its ends.

    `n` may be a fraction: what clustered answers are worth. Raises ValueError outside 0 <= share <= 1 and n > 0.
    """
    if not 0 <= share <= 1 or n <= 0:
        raise ValueError(f"got a share of {share} of {n} answers; 0 <= share <= 1 and n > 0 are allowed")
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return (max(0.0, centre - half) if share > 0 else 0.0, min(1.0, centre + half) if share < 1 else 1.0)


def satterthwaite(parts: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """(variance, degrees of freedom) of a sum of independent estimates, each (variance, degrees of freedom).

    Satterthwaite (1946). Degrees of freedom may be infinite, of one part or of all; without variance they are.
    """
    total = math.fsum(variance for variance, _ in parts)
    if total == 0:
        return 0.0, math.inf
    # Shares of the variance, not the variances themselves: squares of tiny ones would vanish.
    lost = math.fsum((variance / total) ** 2 / df for variance, df in parts)
    return total, 1 / lost if lost else math.inf


def t_interval(centre: float, parts: Sequence[tuple[float, float]], confidence: float = CONFIDENCE) -> Interval:
    """centre +- t(df) * sqrt(variance), of independent (variance, degrees of freedom) as in `satterthwaite`."""
    half = t_bound(parts, (1 + confidence) / 2)
    return (centre - half, centre + half)


def t_bound(parts: Sequence[tuple[float, float]], p: float) -> float:
    """t(df) * sqrt(variance) at the quantile p: what such an error stays below with that chance."""
    variance, df = satterthwaite(parts)
    return t_quantile(p, df) * math.sqrt(variance) if variance else 0.0


@lru_cache(maxsize=4096)
def t_quantile(p: float, df: float) -> float:
    """The value that Student's t with `df` > 0 degrees of freedom (a fraction is fine) stays below with chance p.

    Good to about 1e-9 relative where intervals need it (p >= 0.9). Raises ValueError outside 0 < p < 1.
    """
    if not 0 < p < 1 or not df > 0:
        raise ValueError(f"got p={p}, df={df}; 0 < p < 1 and df > 0 are allowed")
    if df > NORMAL_DF:
        return NormalDist().inv_cdf(p)
    if p < 0.5:
        return -t_quantile(1 - p, df)
    low, high = 0.0, 1.0
    while t_tail(high, df) > 1 - p:
        low, high = high, 2 * high
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if t_tail(middle, df) > 1 - p else (low, middle)
    return (low + high) / 2


def t_tail(t: float, df: float) -> float:
    """P(T > t) for t >= 0: half the regularised incomplete beta I_x(df/2, 1/2) at x = df / (df + t^2)."""
    return 0.5 * _incomplete_beta(df / (df + t * t), df / 2, 0.5)


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """I_x(a, b), regularised (DLMF 8.17)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    # The fraction converges fast only left of the mean; I_x(a, b) = 1 - I_{1-x}(b, a) serves the other side.
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(1 - x, b, a)
    scale = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(scale) / (a * _beta_fraction(x, a, b))


def _beta_fraction(x: float, a: float, b: float) -> float:
    """The continued fraction 1 + d1/(1 + d2/(1 + ...)) of DLMF 8.17.22, by the modified Lentz method."""
    value, upper, lower = 1.0, 1.0, 0.0
    for index in range(1, 10_000):
        m = index // 2
        if index % 2:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        lower = 1 / _away_from_zero(1 + term * lower)
        upper = _away_from_zero(1 + term / upper)
        value *= upper * lower
        if abs(upper * lower - 1) < 1e-15:
            return value
    raise ArithmeticError(f"incomplete beta did not converge at x={x}, a={a}, b={b}")


def _away_from_zero(value: float) -> float:
    return value if abs(value) > 1e-300 else 1e-300


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


def thirds(values: Sequence[float]) -> tuple[float, float]:
    """The mean of the first third and that of the last, of one value each at least. Raises StatisticsError for none."""
    third = max(1, len(values) // 3)
    return fmean(values[:third]), fmean(values[-third:])


def chance_above(z: float) -> float:
    """P(Z >= z) of a standard normal: the one-sided p of so many standard errors."""
    return 0.5 * math.erfc(z / math.sqrt(2.0))


def chance_beyond(z: float) -> float:
    """P(|Z| >= |z|): the two-sided p."""
    return math.erfc(abs(z) / math.sqrt(2.0))


def told_z(z: float) -> float:
    """So many standard errors as evidence has them: 100 at most, either way."""
    return max(-TOLD, min(TOLD, z))


def shown_z(z: float) -> str:
    """The same as a sentence has them: `-4.2 standard errors`, `beyond -100 standard errors`."""
    return f"{z:+.1f} standard errors" if abs(z) <= TOLD else f"beyond {told_z(z):+.0f} standard errors"


def shown_p(p: float) -> str:
    """The p as a sentence has it: `p = 3e-05`. Below 1e-12 no law is that exact."""
    return f"p = {p:.0e}" if p >= 1e-12 else "p < 1e-12"
