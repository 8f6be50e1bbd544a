"""Which run decides most: candidates are screened on one seed, and those that are left raced on more, as pairs.

What is here: pure functions of the runs so far. What is not: running them (adaptive), and which candidates there are.
No torch, no optuna.

A search goes in rounds, in each of which every candidate that is left gets a job:

1. all of them: the first seed, up to the first share of a run's budget;
2. the best quarter, and ten at least: on to the next share; the best eighth, and seven at least: on to the end;
3. those, with one seed more in each round, until the budget is spent or the choice is decided. After each round
   whoever is probably not right is left out.

All candidates of a round have the same seeds: the same prompts and draws. So what a seed does to all of them cancels
(common random numbers), and a round is no longer than it must be (sequential halving: Karnin, Koren and Somekh 2013;
seeds as fidelity). A candidate is *right* where its worth is within `tolerance` of the best one's.

Shapes: C candidates that are left, N seeds that all of them have, S samples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

SAMPLES = 2000  # of what is believed: a probability of .9 then has a standard error of .007
ONE_IN = 4, 8  # candidates go on to the second share of a run, and to its end
FEWEST = 10, 7  # candidates do so at least
REPEATS = 5  # seeds of a choice that is decided on
DOUBT = 0.02  # a candidate that is right with less than this is left out
PRIOR_DF = 4  # what is believed of the noise before it is seen weighs as so many degrees of freedom
SLACK = 1e-9  # of a share


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """A run to begin, or to go on with, up to a share of its budget."""

    candidate: int
    seed: int
    share: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """What a run showed at a share of its budget; `error` is the standard error over prompts of that evaluation."""

    candidate: int
    seed: int
    share: float
    value: float
    error: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """What is searched: so many candidates, the seeds each may have, and where a run may pause.

    `tolerance` is in the metric's unit; values are such that more is better.
    """

    candidates: int
    seeds: tuple[int, ...]
    shares: tuple[float, ...]  # of a run's budget, rising; the last one is 1
    tolerance: float
    confidence: float = 0.9


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What a search may still do: runs' budgets left, and candidates it has to leave."""

    runs: float = math.inf
    excluded: frozenset[int] = frozenset()


NO_LIMITS = Limits()


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """What is believed: the candidate to choose, how likely it is to be right, and what those left are worth.

    `worth` has for each candidate with a whole run its mean, the standard deviation of what is believed about that, and
    its probability of being right. `seeds` is how many all that are left have.
    """

    choice: int | None
    right: float
    worth: dict[int, tuple[float, float, float]]
    left: tuple[int, ...]
    seeds: int


class Search:
    """Decides on jobs: a pure function of what was seen. `key` decides on the draws."""

    def __init__(self, problem: Problem, key: int = 0) -> None:
        self.problem, self._key = problem, key
        self._kept: dict[tuple[int, ...], tuple[bytes, tuple[Array, Array, Array]]] = {}  # it is asked again and again

    def standing(self, seen: Sequence[Seen], limits: Limits = NO_LIMITS) -> Standing:
        """What is believed with all that was seen."""
        table = _Table(self.problem, seen)
        left, _ = self._left(table, limits)
        whole = [one for one in left if table.seeds_of(one)]
        if not whole:  # screening is under way: whoever has whole runs nevertheless
            whole = [
                one for one in range(self.problem.candidates) if table.seeds_of(one) and one not in limits.excluded
            ]
        if not whole:
            return Standing(choice=None, right=0.0, worth={}, left=tuple(left), seeds=0)
        most = max(len(table.seeds_of(one)) for one in whole)
        full = [one for one in whole if len(table.seeds_of(one)) == most]
        seeds = sorted(set.intersection(*(set(table.seeds_of(one)) for one in full)))
        values_CN = np.asarray([[table.at(one, seed, 1.0) for seed in seeds] for one in full])
        mean, sd, right = self._believed(tuple(full), values_CN, table.error)
        best = max(range(len(full)), key=lambda place: (right[place], mean[place]))
        return Standing(
            choice=full[best],
            right=float(right[best]),
            worth={one: (float(mean[i]), float(sd[i]), float(right[i])) for i, one in enumerate(full)},
            left=tuple(left),
            seeds=len(seeds),
        )

    def is_decided(self, standing: Standing) -> bool:
        """Whether the choice is right with the confidence that is asked for, and that can be known.

        With fewer than REPEATS seeds the noise is hardly known.
        """
        return standing.right >= self.problem.confidence and standing.seeds >= REPEATS

    def job(self, seen: Sequence[Seen], given: Sequence[Job], limits: Limits = NO_LIMITS) -> tuple[Job | None, bool]:
        """The next job, and whether there is one to wait for: `given` are jobs under way.

        No job while a round is not over, and none where the budget has too little left for one.
        """
        table = _Table(self.problem, seen)
        _, wanted = self._left(table, limits)
        out = {(job.candidate, job.seed) for job in given}
        open_ones = [job for job in wanted if (job.candidate, job.seed) not in out]
        affordable = [
            job for job in open_ones if job.share - table.reached(job.candidate, job.seed) <= limits.runs + SLACK
        ]
        if affordable:
            return affordable[0], False
        return None, bool(out)

    def _left(self, table: _Table, limits: Limits) -> tuple[list[int], list[Job]]:
        """(the candidates that are left, the jobs that their round still wants)."""
        problem, first = self.problem, self.problem.seeds[0]
        left = [one for one in range(problem.candidates) if one not in limits.excluded]
        sizes = [max(least, math.ceil(len(left) / part)) for least, part in zip(FEWEST, ONE_IN, strict=True)]
        for place, share in enumerate(problem.shares):
            missing = [one for one in left if table.reached(one, first) < share - SLACK]
            if missing:
                return left, [Job(candidate=one, seed=first, share=share) for one in missing]
            shown = {one: table.at(one, first, share) for one in left}
            left.sort(key=lambda one, shown=shown: (-shown[one], one))  # type: ignore[misc]
            if share < 1:  # of a run with one pause the best eighth goes on at once
                left = left[: sizes[max(place, 3 - len(problem.shares))]]
        for count, seed in enumerate(problem.seeds[1:], start=1):
            missing = [one for one in left if table.reached(one, seed) < 1 - SLACK]
            if missing:
                return left, [Job(candidate=one, seed=seed, share=1.0) for one in missing]
            left = self._without_doubtful(table, left, problem.seeds[: count + 1])
        return left, []

    def _without_doubtful(self, table: _Table, left: Sequence[int], seeds: Sequence[int]) -> list[int]:
        """Those that may well be right, the likeliest first; at least two."""
        values_CN = np.asarray([[table.at(one, seed, 1.0) for seed in seeds] for one in left])
        mean, _, right = self._believed(tuple(left), values_CN, table.error)
        order = sorted(range(len(left)), key=lambda place: (-right[place], -mean[place]))
        return [left[place] for rank, place in enumerate(order) if rank < 2 or right[place] >= DOUBT]

    def _believed(self, who: tuple[int, ...], values_CN: Array, error: float) -> tuple[Array, Array, Array]:
        """What is believed of these candidates with these values."""
        state = values_CN.tobytes() + np.float64(error).tobytes()
        known = self._kept.get((*who, values_CN.shape[1]))
        if known is None or known[0] != state:
            key = [self._key, values_CN.shape[1]]
            known = (state, believed(values_CN, error, self.problem.tolerance, key))
            self._kept[(*who, values_CN.shape[1])] = known
        return known[1]


class _Table:
    """What was seen, by candidate and seed."""

    def __init__(self, problem: Problem, seen: Sequence[Seen]) -> None:
        self._values: dict[tuple[int, int], dict[float, float]] = {}
        self._seeds = problem.seeds
        squares = [one.error**2 for one in seen if one.share >= 1]
        self.error = math.sqrt(sum(squares) / len(squares)) if squares else 0.0
        for one in seen:
            self._values.setdefault((one.candidate, one.seed), {})[one.share] = one.value

    def reached(self, candidate: int, seed: int) -> float:
        """The share of its budget that a run has come to."""
        return max(self._values.get((candidate, seed), {}), default=0.0)

    def at(self, candidate: int, seed: int, share: float) -> float:
        """What a run showed at the share, or at the last one before it that it has, else at its first."""
        values = self._values[candidate, seed]
        return values[max((one for one in values if one <= share + SLACK), default=min(values))]

    def seeds_of(self, candidate: int) -> list[int]:
        """The seeds of its whole runs, in their order."""
        return [seed for seed in self._seeds if self.reached(candidate, seed) >= 1 - SLACK]


def believed(values_CN: Array, error: float, tolerance: float, key: Sequence[int]) -> tuple[Array, Array, Array]:
    """(mean, sd, probability of being right) of each candidate's worth, all on the same seeds.

    y = worth + what the seed does to all + noise. The noise's variance is that of a two-way table, with the error of an
    evaluation as its prior guess; worth is normal about the mean of those that are left, with the spread that the means
    show beyond noise: the best of several noisy means is too high. Means are given up to what the seeds do to all.
    """
    count, seeds = values_CN.shape
    means = values_CN.mean(axis=1)
    rest = values_CN - means[:, None] - values_CN.mean(axis=0) + values_CN.mean()
    df = (count - 1) * (seeds - 1)
    total_df = PRIOR_DF + df
    guess = max(error, 1e-9) ** 2
    variance = (PRIOR_DF * guess + float(np.square(rest).sum())) / total_df
    rng = np.random.default_rng(list(key))
    noise_S = variance * total_df / rng.chisquare(total_df, SAMPLES) / seeds
    spread = float(means.var(ddof=1)) if count > 1 else 0.0
    between_S = np.maximum(spread - noise_S, 0.1 * noise_S)
    weight_S = between_S / (between_S + noise_S)
    centre = float(means.mean())
    sd_S = np.sqrt(weight_S * noise_S)
    draws_SC = centre + weight_S[:, None] * (means - centre) + sd_S[:, None] * rng.standard_normal((SAMPLES, count))
    right = (draws_SC >= draws_SC.max(axis=1, keepdims=True) - tolerance).mean(axis=0)
    return draws_SC.mean(axis=0), draws_SC.std(axis=0), right
