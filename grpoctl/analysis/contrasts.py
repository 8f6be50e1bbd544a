"""How far apart two sides are, of several: differences with intervals that hold for new seeds and for new problems.

Every run of a side answers the same held-out problems, and runs of one seed draw with the same random numbers. So a
difference has three sources of noise: which seeds were run, which problems are asked, and the draws. Each is estimated
by its own mean square (a two-way layout, seeds x problems), added up, and given Satterthwaite's degrees of freedom.
Which estimate is used was chosen by its coverage in simulations (benchmarks/compare_coverage.py, docs/benchmarks.md).

Shape suffixes: S seeds, M problems. Pure functions of numbers; which runs they are of is not here.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations
from typing import TYPE_CHECKING, Any, Literal

from core.health.statistics import (
    CONFIDENCE,
    Interval,
    Method,
    clipped,
    cluster_df,
    mean,
    sample_sd,
    satterthwaite,
    t_quantile,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

POWER = 0.8  # chance that the smallest difference which "could have been shown" is shown
PAIRED_FROM = 5  # seeds; with fewer, variances of both sides have twice the degrees of freedom of their differences
MOST_SEEDS = 200  # that are ever recommended
NOMINAL = 0.965  # of a verdict on two sides over seeds and problems: .95 calls up to 6 % of equal ones different
LEAST_SHARE = 0.5  # of the variance that problems and draws have: none of a difference is less


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcomes:
    """One metric of one side: a value for each seed, and what that is the mean of, where it was recorded.

    `problems` names the M problems. `answers_SM` are means over draws, in their order and that of the sorted seeds.
    `clusters` names that of each problem, where those of one are not independent.
    """

    values: Mapping[int, float]
    problems: tuple[str, ...] = ()
    answers_SM: Floats | None = None
    clusters: tuple[str, ...] | None = None

    @property
    def n(self) -> int:
        """How many seeds it has."""
        return len(self.values)

    @property
    def seeds(self) -> list[int]:
        """Its seeds, in their order."""
        return sorted(self.values)

    @property
    def seeds_alike(self) -> bool:
        """True where several seeds gave the same number: seeds that do nothing tell of no other runs."""
        return self.n > 1 and len(set(self.values.values())) == 1

    @property
    def mean(self) -> float:
        """The mean over its seeds."""
        return mean(list(self.values.values()))

    def without(self, seed: int) -> Outcomes:
        """The side without one of its seeds."""
        kept = [place for place, other in enumerate(self.seeds) if other != seed]
        return Outcomes(
            values={other: value for other, value in self.values.items() if other != seed},
            problems=self.problems,
            clusters=self.clusters,
            answers_SM=None if self.answers_SM is None else self.answers_SM[kept],
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Sources:
    """The variance of a difference by where it comes from; what is missing was not recorded."""

    seed: float
    problem: float | None = None
    draw: float | None = None  # of the draws, and of what a seed does to single problems

    @property
    def variance(self) -> float:
        """The whole."""
        return self.seed + (self.problem or 0.0) + (self.draw or 0.0)

    def shares(self) -> dict[str, float]:
        """The share of each source that is known; none where nothing varies."""
        parts = {"seed": self.seed, "problem": self.problem, "draw": self.draw}
        return {name: part / self.variance for name, part in parts.items() if part is not None and self.variance}

    def document(self) -> dict[str, float | None]:
        """The share of each source, null where it is not known, and the variance itself."""
        return {**dict.fromkeys(("seed", "problem", "draw")), **self.shares(), "variance": self.variance}


@dataclass(frozen=True, kw_only=True, slots=True)
class Contrast:
    """B minus A on one metric. `interval` has 95 % of all pairs of sides, `family` those of all pairs at once.

    `family` is the wider one, on which the verdict rests: in 95 % at least no difference of any two sides
    that are looked at is outside of its own. Both are None where a side has one seed,
    and where the seeds of each side gave the same number.
    """

    mean: float
    interval: Interval | None
    family: Interval | None
    method: Method
    df: float | None
    error: float | None  # the standard error
    seeds: tuple[int, int]
    problems: int | None  # None: not recorded, the interval is over seeds alone; or clusters of them
    sources: Sources | None
    improvement: Improvement
    smallest: float | None  # difference that such data show in 4 of 5 tries
    seeds_needed: int | None  # a side, for a difference as large as this one; None: more seeds alone do not decide
    rests_on: tuple[int, ...] = ()  # seeds without any one of which it is no longer clear
    clustered: bool = False  # `problems` counts clusters of problems

    @property
    def clear(self) -> bool:
        """True when no difference is ruled out."""
        return self.family is not None and not self.family[0] <= 0 <= self.family[1]

    @property
    def seeds_alike(self) -> bool:
        """True where the seeds of each side gave the same number, so that there is no interval."""
        return self.family is None and min(self.seeds) > 1

    @property
    def seeds_to_show(self) -> int | None:
        """The seeds a side, more than there are, that would show a difference of this size; None: none alone would."""
        return None if self.seeds_needed is None else max(self.seeds_needed, min(self.seeds) + 1)

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "mean": self.mean,
            "interval": self.interval,
            "family_interval": self.family,
            "method": self.method,
            "df": None if self.df is None or math.isinf(self.df) else self.df,
            "standard_error": self.error,
            "seeds": list(self.seeds),
            "problems": self.problems,
            **({"clustered": True} if self.clustered else {}),
            "clear": self.clear,
            "probability_of_improvement": self.improvement.document(),
            "smallest_detectable": self.smallest,
            "seeds_needed": self.seeds_needed,
            "rests_on_seeds": list(self.rests_on),
            "variance_by_source": None if self.sources is None else self.sources.document(),
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Improvement:
    """How often a run of B is better than one of A, ties counting half (Agarwal et al. 2021, rliable)."""

    value: float
    interval: Interval | None  # Newcombe (2006); None for a side of one seed
    pairs: int

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"value": self.value, "interval": self.interval, "pairs": self.pairs, "method": "newcombe"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Noise:
    """A variance with its degrees of freedom, and what it is made of."""

    variance: float
    df: float
    method: Literal["paired", "welch"]
    sources: Sources
    problems: int | None
    clustered: bool = False

    @property
    def beyond(self) -> float:
        """The quantile that a verdict on two sides takes: of t over seeds alone, which is exact, or a wider one."""
        return (1 + (CONFIDENCE if self.problems is None else NOMINAL)) / 2


def contrasts(sides: Sequence[Outcomes]) -> dict[tuple[int, int], Contrast]:
    """(place of A, place of B) -> B minus A, for every two sides that have values."""
    family = Family.of(sides)
    return {(a, b): _contrast(sides[a], sides[b], of_pair, family) for (a, b), of_pair in family.noises.items()}


def contrast(a: Outcomes, b: Outcomes) -> Contrast:
    """B minus A, the only two sides."""
    return contrasts([a, b])[0, 1]


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """All pairs of `many` sides that are looked at together, and their mean noise."""

    noises: Mapping[tuple[int, int], Noise | None]
    many: int
    variance: float
    df: float

    @classmethod
    def of(cls, sides: Sequence[Outcomes]) -> Family:
        """The pairs of sides that have values."""
        there = [place for place, side in enumerate(sides) if side.n]
        noises = {(a, b): noise(sides[a], sides[b]) for a, b in combinations(there, 2)}
        known = [of_pair.variance for of_pair in noises.values() if of_pair is not None]
        df = float(sum(max(side.n - 1, 0) for side in sides))
        return cls(noises=noises, many=len(there), variance=mean(known) if known else 0.0, df=df)

    def half_widths(self, of_pair: Noise) -> tuple[float, float]:
        """Of the pair's own interval, and of the one that holds for all pairs at once.

        Among many pairs some have runs that happen to agree: none may look more precise than all are on the mean.
        """
        error = math.sqrt(of_pair.variance)
        own = t_quantile((1 + CONFIDENCE) / 2, of_pair.df) * error
        if self.many <= 2:
            return own, t_quantile(of_pair.beyond, of_pair.df) * error
        wide = range_quantile(self.many, of_pair.df) * error
        return own, max(own, wide, range_quantile(self.many, self.df) * math.sqrt(self.variance))


def _contrast(a: Outcomes, b: Outcomes, of_pair: Noise | None, family: Family) -> Contrast:
    gap = b.mean - a.mean
    odds = improvement(list(a.values.values()), list(b.values.values()))
    if of_pair is None:
        return Contrast(
            mean=gap, interval=None, family=None, method="none", df=None, error=None, seeds=(a.n, b.n), problems=None,
            sources=None, improvement=odds, smallest=None, seeds_needed=None,
        )  # fmt: skip
    error, df = math.sqrt(of_pair.variance), of_pair.df
    half, wide = family.half_widths(of_pair)
    made = Contrast(
        mean=gap,
        interval=(gap - half, gap + half),
        family=(gap - wide, gap + wide),
        method=of_pair.method,
        df=df,
        error=error,
        seeds=(a.n, b.n),
        problems=of_pair.problems,
        clustered=of_pair.clustered,
        sources=of_pair.sources,
        improvement=odds,
        smallest=wide + t_quantile(POWER, df) * error,
        seeds_needed=seeds_needed(gap, of_pair, (a.n, b.n)),
    )
    return replace(made, rests_on=_rests_on(a, b)) if family.many == 2 and made.clear else made


def noise(a: Outcomes, b: Outcomes) -> Noise | None:
    """The variance of the difference of two sides' means; None where nothing tells of other seeds: a side has one, or
    those of each side gave the same number.

    The same problems on both sides cancel what makes a problem hard; they must have the same names in the same order.
    One that is not known to every run is left out; those of a cluster count together.
    """
    if a.n < 2 or b.n < 2:
        return None
    if a.answers_SM is None or b.answers_SM is None or a.problems != b.problems:
        return _over_seeds(a, b)
    import numpy as np

    known_M = np.atleast_1d(np.isfinite(a.answers_SM).all(0) & np.isfinite(b.answers_SM).all(0))
    own = a.clusters or b.clusters  # of the same problems, also where one side's runs are older and do not say
    named = None if own is None else [one for one, known in zip(own, known_M, strict=True) if known]
    m = int(known_M.sum()) if named is None else len(set(named))
    if m < 2:
        return _over_seeds(a, b)
    tables = [a.answers_SM[:, known_M], b.answers_SM[:, known_M]]
    problem_df = m - 1.0
    if named is not None:
        tables = [_by_cluster(table_SM, named) for table_SM in tables]
        problem_df = cluster_df([*Counter(named).values()])
    by_problem = float((tables[1].mean(0) - tables[0].mean(0)).var(ddof=1)) / m
    method: Literal["paired", "welch"] = "paired" if a.seeds == b.seeds and a.n >= PAIRED_FROM else "welch"
    if method == "paired":
        tables = [tables[1] - tables[0]]
    parts = [(float(table_SM.mean(1).var(ddof=1)) / len(table_SM), len(table_SM) - 1.0) for table_SM in tables]
    by_seed, seed_df = satterthwaite(parts)
    rest = sum(_interaction(table_SM) for table_SM in tables)
    # Each of the first two has the third within, which is counted once: where problems add nothing to it, this is t
    # over seeds. Seeds may agree, by chance, better than draws let them: then half of what problems show is more.
    of_problems = max(by_problem - rest, 0.0)
    total = by_seed + of_problems
    lost = by_seed**2 / seed_df + of_problems**2 / problem_df
    df = max(total**2 / lost, min(a.n, b.n) - 1.0) if lost else math.inf
    least = LEAST_SHARE * by_problem
    beyond = (1 + CONFIDENCE) / 2
    if t_quantile(beyond, df) ** 2 * total < t_quantile(beyond, problem_df) ** 2 * least:
        total, df = least, problem_df
    problem = min(of_problems, total)
    seed = min(max(by_seed - rest, 0.0), total - problem)
    sources = Sources(seed=seed, problem=problem, draw=total - problem - seed)
    return Noise(variance=total, df=df, method=method, sources=sources, problems=m, clustered=named is not None)


def _by_cluster(table_SM: Floats, clusters: Sequence[str]) -> Floats:
    """(S, C): a column for each cluster, whose mean is that over problems; of equal clusters the mean of each.

    Sums of deviations from a seed's mean, as in core.health.statistics.clustered_se: sizes that differ are no noise.
    """
    import numpy as np

    names, places_M = np.unique(clusters, return_inverse=True)
    means_S1 = table_SM.mean(1, keepdims=True)
    off_SM = table_SM - means_S1
    sums_SC = np.stack([off_SM[:, places_M == at].sum(1) for at in range(len(names))], axis=1)
    columns_SC: Floats = means_S1 + sums_SC * len(names) / len(clusters)
    return columns_SC


def _over_seeds(a: Outcomes, b: Outcomes) -> Noise | None:
    """Of the values of seeds alone: what other problems would have shown is not in it. None where seeds do nothing."""
    if a.seeds_alike and b.seeds_alike:
        return None
    if a.seeds == b.seeds:
        method: Literal["paired", "welch"] = "paired"
        columns = [[b.values[seed] - a.values[seed] for seed in a.seeds]]
    else:
        method, columns = "welch", [list(side.values.values()) for side in (a, b)]
    parts = [((sample_sd(column) or 0.0) ** 2 / len(column), len(column) - 1.0) for column in columns]
    variance, df = satterthwaite(parts)
    return Noise(variance=variance, df=df, method=method, sources=Sources(seed=variance), problems=None)


def _interaction(table_SM: Floats) -> float:
    """The mean square of what neither a row nor a column explains, over S x M."""
    rest_SM = table_SM - table_SM.mean(1, keepdims=True) - table_SM.mean(0, keepdims=True) + table_SM.mean()
    s, m = int(table_SM.shape[0]), int(table_SM.shape[1])
    return float((rest_SM**2).sum()) / ((s - 1) * (m - 1)) / (s * m)


def seeds_needed(gap: float, of_pair: Noise, seeds: tuple[int, int]) -> int | None:
    """The seeds a side with which a difference of this size is found in 4 of 5 tries; None where no number does.

    With more seeds, what problems do stays: they are the same ones.
    """
    if gap == 0:
        return None
    fixed = of_pair.sources.problem or 0.0
    moving = (of_pair.sources.seed + (of_pair.sources.draw or 0.0)) * min(seeds)

    def enough(n: int) -> bool:
        df = n - 1.0 if of_pair.method == "paired" else 2.0 * (n - 1)
        shown = t_quantile(of_pair.beyond, df) + t_quantile(POWER, df)
        return shown * math.sqrt(fixed + moving / n) <= abs(gap)

    if not enough(MOST_SEEDS):
        return None
    return bisect_left(range(2, MOST_SEEDS), True, key=enough) + 2


def _rests_on(a: Outcomes, b: Outcomes) -> tuple[int, ...]:
    """The seeds without which a difference that is clear would not be, or would be another one."""
    if min(a.n, b.n) < 3:
        return ()
    carrying = []
    for seed in sorted(a.values.keys() & b.values.keys()):
        rest_a, rest_b = a.without(seed), b.without(seed)
        gap, of_rest = rest_b.mean - rest_a.mean, noise(rest_a, rest_b)
        if of_rest is None:  # it is the only one that differs
            carrying.append(seed)
            continue
        half = t_quantile(of_rest.beyond, of_rest.df) * math.sqrt(of_rest.variance)
        if abs(gap) <= half or (gap > 0) != (b.mean > a.mean):
            carrying.append(seed)
    return tuple(carrying)


def improvement(a: Sequence[float], b: Sequence[float]) -> Improvement:
    """The chance that a run of B beats one of A, by all pairs; its interval is Newcombe's (2006) method 5."""
    wins = sum((y > x) + 0.5 * (y == x) for x in a for y in b)
    pairs = len(a) * len(b)
    value = wins / pairs
    if min(len(a), len(b)) < 2:
        return Improvement(value=value, interval=None, pairs=pairs)
    z, extra = 1.959963984540054, (len(a) + len(b)) / 2 - 1

    def beyond(theta: float) -> float:
        """How many standard errors of theta the estimate is away from it, less z."""
        spread = theta * (1 - theta) * (1 + extra * ((1 - theta) / (2 - theta) + theta / (1 + theta))) / pairs
        return abs(value - theta) - z * math.sqrt(spread)

    def bound(inside: float, outside: float) -> float:
        for _ in range(60):
            middle = (inside + outside) / 2
            inside, outside = (inside, middle) if beyond(middle) > 0 else (middle, outside)
        return inside

    return Improvement(value=value, interval=(bound(value, 0.0), bound(value, 1.0)), pairs=pairs)


def pass_at(right: int, draws: int, k: int) -> float:
    """The chance that one of k draws is right, where `right` of `draws` were (Chen et al. 2021), unbiased.

    Raises ValueError where k is more than the draws.
    """
    if not 0 <= right <= draws or not 1 <= k <= draws:
        raise ValueError(
            f"got {right} right of {draws} draws, k = {k}; 0 <= right <= draws and 1 <= k <= draws are allowed"
        )
    return 1.0 - math.comb(draws - right, k) / math.comb(draws, k)


def clip(made: Contrast, low: float | None, high: float | None) -> Contrast:
    """The contrast with intervals inside what differences of a metric between these limits can be."""
    if low is None or high is None:
        return made
    inside = [None if one is None else clipped(one, low - high, high - low) for one in (made.interval, made.family)]
    return replace(made, interval=inside[0], family=inside[1])


def range_quantile(many: int, df: float) -> float:
    """What no difference of two of `many` means exceeds with 95 %, in its standard errors (Tukey 1949, Kramer 1956).

    Degrees of freedom are rounded down by up to 5 %: to integrate for each of 190 pairs would take half a minute.
    """
    return _range_quantile(many, math.floor(math.log(df) / math.log(1.05)) if df < 1e4 else None)


@cache
def _range_quantile(many: int, step: int | None) -> float:
    from scipy import stats

    df = math.inf if step is None else 1.05**step
    return float(stats.studentized_range.ppf(CONFIDENCE, many, df)) / math.sqrt(2)
