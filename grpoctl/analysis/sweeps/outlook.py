"""What more budget would buy, as far as the record shows: longer runs, and more seeds. Pure functions.

Nothing here is extrapolated: a gain is one that was measured over the last quarter of the budget, and a number of seeds
is what 4 of 5 studies would find a difference with that is as large as the one that was seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from core.health.statistics import Interval, mean, t_interval, t_quantile
from grpoctl.analysis.curves import value_at
from grpoctl.analysis.sweeps.budget import seed_curves
from grpoctl.analysis.sweeps.ranking import FOUND, Noise, Ranking, critical_value, pooled

LAST = 0.75  # the last part of a run's budget begins here
MOST_SEEDS = 100  # of a candidate: more is no advice

_EARLIEST = 0.5  # an evaluation before the last quarter stands at this share or later
_END = 0.95  # and one at its end
_INTERVAL_KIND = "95 % t interval over seeds, their standard deviation pooled over the best set"

Trend = Literal["rising", "flat", "falling", "unclear", "unknown"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Longer:
    """What the best set gained over the last quarter of the budget, in the direction of the sweep.

    `trend` is rising or falling where the interval leaves 0 out; flat where it holds 0 and reaches no further than
    `least`, the least significant difference of the sweep; else unclear. Unknown: there are not enough evaluations.
    """

    trend: Trend
    gain: float | None = None
    interval: Interval | None = None
    candidates: int = 0
    runs: int = 0
    least: float | None = None

    def document(self) -> dict[str, Any]:
        """What sweep.json has of it."""
        interval = None if self.interval is None else list(self.interval)
        return asdict(self) | {"interval": interval, "interval_kind": _INTERVAL_KIND}


def longer(trials: Mapping[int, Mapping[str, Any]], ranking: Ranking, *, sign: float) -> Longer:
    """Is the best set still rising over the last quarter of its budget?

    The whole set and not the winner alone: the one that ends highest has ended high by luck, too. Runs are read along
    straight lines between evaluations; one without an evaluation in the second quarter from the end, or near the end,
    is left out. The mean is over candidates, the noise between seeds of one candidate.
    """
    gains = []
    for index in ranking.indistinguishable:
        if index not in ranking.flagged:
            curves = seed_curves(trials[index].get("curve") or ())
            own = [gain for gain in (_last_gain(curve) for curve in curves) if gain is not None]
            gains += [[sign * gain for gain in own]] if own else []
    spread = pooled(gains)
    if not gains or spread is None or spread.nothing:
        return Longer(trend="unknown", candidates=len(gains), runs=sum(map(len, gains)))
    centre = mean([mean(own) for own in gains])
    variance = sum(spread.sd**2 / len(own) for own in gains) / len(gains) ** 2
    interval = t_interval(centre, [(variance, float(spread.df))])
    least = least_difference(ranking)
    trend: Trend = "unclear"
    if interval[0] > 0 or interval[1] < 0:
        trend = "rising" if interval[0] > 0 else "falling"
    elif least is not None and max(-interval[0], interval[1]) <= least:
        trend = "flat"
    return Longer(
        trend=trend,
        gain=centre,
        interval=interval,
        candidates=len(gains),
        runs=sum(map(len, gains)),
        least=least,
    )


def _last_gain(curve: Sequence[tuple[float, float]]) -> float | None:
    """The end less where the last quarter begins; None where the evaluations do not say."""
    before = [share for share, _ in curve if share <= LAST]
    start = value_at(curve, LAST)
    if not before or max(before) < _EARLIEST or start is None or curve[-1][0] < _END:
        return None
    return curve[-1][1] - start


def least_difference(ranking: Ranking) -> float | None:
    """The least significant difference between the first and the second, with the seeds they have; None: not known."""
    if ranking.noise is None or ranking.critical is None:
        return None
    first, second = ranking.order[:2]
    return ranking.critical * ranking.noise.apart(ranking.sizes[first], ranking.sizes[second])


@dataclass(frozen=True, kw_only=True, slots=True)
class MoreSeeds:
    """What the difference between the first and the second takes to be told from noise.

    `needed` are the seeds of each candidate with which the sweep's own test would call a true gap of this size
    significant in 4 of 5 studies (FOUND), as everywhere; None where it takes more than MOST_SEEDS. `now` is what the
    second and the first have (the fewer), `least` the smallest difference that is significant with them.
    """

    first: int
    second: int
    gap: float
    now: int
    least: float
    needed: int | None

    @property
    def significant(self) -> bool:
        """True where the gap is beyond noise already."""
        return self.needed is not None and self.needed <= self.now

    def document(self) -> dict[str, Any]:
        """What sweep.json has of it."""
        return asdict(self)


def more_seeds(ranking: Ranking) -> MoreSeeds | None:
    """How many seeds of every candidate would tell the first from the second; None without noise or a second one.

    By the sweep's own test: t at 0.95^(1/m) for all m pairs, with the degrees of freedom that so many seeds give, and t
    at FOUND beyond it: a gap that is just as large as the test's limit is found by half of the studies only.
    """
    noise, least = ranking.noise, least_difference(ranking)
    if noise is None or least is None or least == 0 or set(ranking.order[:2]) & set(ranking.flagged):
        return None
    first, second = ranking.order[:2]
    gap = abs(ranking.scores[first] - ranking.scores[second])
    now = min(ranking.sizes[first], ranking.sizes[second])
    if gap > least:
        return MoreSeeds(first=first, second=second, gap=gap, now=now, least=least, needed=now)
    k = len(ranking.order)
    needed = next((n for n in range(now + 1, MOST_SEEDS + 1) if _found_at(n, k, noise) <= gap), None)
    return MoreSeeds(first=first, second=second, gap=gap, now=now, least=least, needed=needed)


def _found_at(seeds: int, candidates: int, noise: Noise) -> float:
    """The smallest true difference that 4 of 5 studies find between candidates of so many seeds, with this noise."""
    known = Noise(sd=noise.sd, df=max(noise.df, candidates * (seeds - 1)), evaluation=noise.evaluation)
    critical = critical_value(candidates, known)
    assert critical is not None
    return (critical + t_quantile(FOUND, known.df)) * known.apart(seeds, seeds)
