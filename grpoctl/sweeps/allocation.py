"""Which run decides most: a model of what candidates are worth, and the job that best tells the contenders apart.

What is here: pure functions of the runs so far. What is not: running them (adaptive), and which candidates there are
(candidates, samplers). No torch, no optuna.

The model is a Gaussian process. What the run of candidate i with seed s shows at the share t of its budget is

    y(i, s, t) = level(t) + worth(i, t) + luck(s) + noise(i, s, t)

`worth` is alike for candidates that are alike on the axes, plus a part of each candidate's own; `luck` is what a seed
does to all candidates alike (the same prompts, the same draws), so that runs of one seed are compared as pairs. Worth
and noise at two shares are correlated, and that is all by which a short run speaks of a whole one. All variances,
correlations and lengths are those that make what was seen most likely, under weak priors: they are pooled over all
candidates. After Frazier, Powell and Dayanik 2009 (correlated beliefs), Russo 2016 (top-two sampling), Swersky, Snoek
and Adams 2014 (freezing and thawing runs).

Shapes: C candidates, A axes, N observations, S samples.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import cho_factor, cho_solve, solve_triangular

Array = NDArray[np.float64]

SAMPLES = 512  # of the posterior: a probability of .9 then has a standard error of .013
VAGUE = 9.0  # sd of the level at a share, in units of the spread: nothing is known of it before
FITTED_FROM = 8  # observations; fewer leave the priors as they are
FITTED_EVERY = 1.25  # then again whenever there are so many times as many
FINISH = 0.1  # so much likelier to be right than the choice is a leader that is given its whole run
LAST_RUNS = 1.5  # with fewer runs' budgets left and no whole run yet, the leader gets one
JITTER = 1e-6  # of variances, in units of the spread squared
LEAST_SPREAD = 5.0  # tolerances
REPEATS = 2  # whole runs of a choice that is decided on
MOST_SEEN = 300  # observations that the beliefs are of
MOST_FITTED = 150  # observations that the shape is fitted to; beyond MOST_SEEN it is not fitted again
CONTENDERS = 256  # candidates among which the best is looked for; the others are too far behind
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
class Shape:
    """The parameters of the model: sds in units of the spread of what was seen, correlations for a doubled share."""

    smooth: float = 0.8  # sd of a candidate's worth by its place on the axes
    own: float = 0.4  # sd of its own part
    noise: float = 0.5  # sd between runs of a candidate
    luck: float = 0.2  # sd of what a seed does to all
    worth_keeps: float = 0.8  # correlation of a candidate's worth at a share and at twice that
    noise_keeps: float = 0.6  # the same of a run's noise
    grows: float = 0.5  # sd of worth at a share is that at the end, times the share to this power
    lengths: tuple[float, ...] = ()  # of each axis, whose ends are 1 apart
    error: float = 0.0  # of an evaluation over its prompts: runs cannot agree better, but by luck
    tilts: tuple[float, ...] = ()  # log of the noise's sd at the upper end of an axis against that at its lower end

    def moved(self, name: str, factor: float) -> Shape:
        """The shape with a parameter, or the length of an axis (`lengths.2`), changed by a factor."""
        group, _, place = name.partition(".")
        value = getattr(self, group)
        changed: Any = value * factor if not place else None
        if place:
            old = value[int(place)]
            new = old + math.log(factor) if group == "tilts" else old * factor
            changed = (*value[: int(place)], new, *value[int(place) + 1 :])
        elif name.endswith("_keeps"):  # on the scale of the odds
            odds = value / (1 - value) * factor
            changed = odds / (1 + odds)
        return replace(self, **{group: changed})

    def penalty(self, prior: Shape) -> float:
        """Minus the log density of weak priors: log-normal about the defaults."""
        total = 0.0
        for name in ("smooth", "own", "noise", "luck", "grows"):
            total += 0.5 * (math.log(getattr(self, name) / getattr(prior, name)) / 0.8) ** 2
        for name in ("worth_keeps", "noise_keeps"):
            mine, theirs = getattr(self, name), getattr(prior, name)
            total += 0.5 * (math.log(mine / (1 - mine) / (theirs / (1 - theirs))) / 1.0) ** 2
        total += sum(0.5 * (tilt / 0.7) ** 2 for tilt in self.tilts)
        for mine, theirs in zip(self.lengths, prior.lengths, strict=True):
            total += 0.5 * (math.log(mine / theirs) / 1.0) ** 2
        return total


PARAMETERS = ("smooth", "own", "noise", "luck", "worth_keeps", "noise_keeps", "grows")


class Places:
    """Observations to be made or already made, as arrays."""

    def __init__(self, candidates: ArrayLike, seeds: ArrayLike, shares: ArrayLike) -> None:
        self.candidate = np.asarray(candidates, dtype=np.int64)
        self.seed = np.asarray(seeds, dtype=np.int64)
        self.share = np.asarray(shares, dtype=np.float64)

    def __len__(self) -> int:
        return len(self.candidate)

    def __add__(self, other: Places) -> Places:
        return Places(
            np.concatenate([self.candidate, other.candidate]),
            np.concatenate([self.seed, other.seed]),
            np.concatenate([self.share, other.share]),
        )


class Between:
    """What does not change with the shape, between two lists of places."""

    def __init__(self, features_CA: Array, left: Places, right: Places) -> None:
        one, two = features_CA[left.candidate], features_CA[right.candidate]
        self.squares = np.square(one[:, None, :] - two[None, :, :])
        self.same = left.candidate[:, None] == right.candidate[None, :]
        self.seed = left.seed[:, None] == right.seed[None, :]
        ends = np.log2(left.share)[:, None], np.log2(right.share)[None, :]
        self.octaves, self.early = np.abs(ends[0] - ends[1]), ends[0] + ends[1]
        self.level = self.octaves < 1e-6
        self.places = one - 0.5, two - 0.5

    def worth(self, shape: Shape) -> Array:
        """Covariance of the worth of the candidates at their shares."""
        scaled = self.squares @ (0.5 / np.square(np.asarray(shape.lengths))) if shape.lengths else 0.0
        alike: Array = shape.smooth**2 * np.exp(-scaled) + shape.own**2 * self.same
        return np.asarray(alike * shape.worth_keeps**self.octaves * 2 ** (shape.grows * self.early))

    def shown(self, shape: Shape) -> Array:
        """Covariance of what runs show there, without the level."""
        tilts = np.asarray(shape.tilts)
        sds = [np.exp(place @ tilts) if len(tilts) else np.ones(len(place)) for place in self.places]
        runs = self.same & self.seed
        noise = (shape.noise**2 * np.outer(*sds) + shape.error**2) * runs * shape.noise_keeps**self.octaves
        return np.asarray(self.worth(shape) + shape.luck**2 * self.seed + noise)


class Beliefs:
    """What is believed of the candidates' worth, given what was seen and a shape."""

    def __init__(self, features_CA: Array, seen: Places, values_N: Array, shape: Shape) -> None:
        self.features, self.seen, self.shape, self._values = features_CA, seen, shape, values_N
        between = Between(features_CA, seen, seen)
        covariance = between.shown(shape) + VAGUE**2 * between.level + JITTER * np.eye(len(seen))
        self._factor = cho_factor(covariance, lower=True)
        self._weights = cho_solve(self._factor, values_N)

    def expecting(self, pending: Places) -> Beliefs:
        """What would be believed if these had shown what is expected of them: surer, and no better."""
        if not len(pending):
            return self
        between = Between(self.features, pending, self.seen)
        expected = (between.shown(self.shape) + VAGUE**2 * between.level) @ self._weights
        return Beliefs(self.features, self.seen + pending, np.concatenate([self._values, expected]), self.shape)

    def worth(self, places: Places) -> tuple[Array, Array]:
        """(mean, covariance) of worth at these places."""
        cross = Between(self.features, places, self.seen).worth(self.shape)
        prior = Between(self.features, places, places).worth(self.shape)
        half = solve_triangular(self._factor[0], cross.T, lower=True)
        return cross @ self._weights, prior - half.T @ half

    def marginals(self, places: Places) -> tuple[Array, Array]:
        """(mean, sd) of worth at these places."""
        cross = Between(self.features, places, self.seen).worth(self.shape)
        half = solve_triangular(self._factor[0], cross.T, lower=True)
        prior = (self.shape.smooth**2 + self.shape.own**2) * places.share ** (2 * self.shape.grows)
        return cross @ self._weights, np.sqrt(np.maximum(prior - np.square(half).sum(axis=0), 0.0))

    def informs(self, places: Places, jobs: Places) -> tuple[Array, Array]:
        """(covariance of worth at the places with what the jobs would show, variance of that): (C, J), (J,)."""
        between = Between(self.features, jobs, self.seen)
        cross_jobs = between.shown(self.shape) + VAGUE**2 * between.level
        cross_worth = Between(self.features, places, self.seen).worth(self.shape)
        half_jobs = solve_triangular(self._factor[0], cross_jobs.T, lower=True)
        half_worth = solve_triangular(self._factor[0], cross_worth.T, lower=True)
        own = Between(self.features, jobs, jobs)
        variance = np.diag(own.shown(self.shape) + VAGUE**2 * own.level) - np.square(half_jobs).sum(0)
        prior = Between(self.features, places, jobs).worth(self.shape)
        return prior - half_worth.T @ half_jobs, np.maximum(variance, JITTER)


def likelihood(between: Between, values_N: Array, shape: Shape) -> float:
    """Log density of the values."""
    covariance = between.shown(shape) + VAGUE**2 * between.level + JITTER * np.eye(len(values_N))
    factor, _ = cho_factor(covariance, lower=True, check_finite=False)
    white = solve_triangular(factor, values_N, lower=True, check_finite=False)
    return float(-0.5 * white @ white - np.log(np.diag(factor)).sum())


def prior_shape(axes: int) -> Shape:
    """What is taken before anything was seen."""
    return Shape(lengths=(1.0,) * axes, tilts=(0.0,) * axes)


def fitted(features_CA: Array, seen: Places, values_N: Array, start: Shape) -> Shape:
    """The shape that makes what was seen most likely, by going along one parameter after another."""
    prior = replace(prior_shape(features_CA.shape[1]), error=start.error)
    if len(seen) < FITTED_FROM:
        return prior
    between = Between(features_CA, seen, seen)
    axes = range(features_CA.shape[1])
    names = [*PARAMETERS, *(f"lengths.{axis}" for axis in axes), *(f"tilts.{axis}" for axis in axes)]
    best, at = likelihood(between, values_N, start) - start.penalty(prior), start
    for name, factor in itertools.product(names, (1.6, 1 / 1.6)):
        while True:
            shape = at.moved(name, factor)
            value = likelihood(between, values_N, shape) - shape.penalty(prior)
            if value <= best + 1e-3:
                break
            best, at = value, shape
    return at


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """What is searched: where candidates are on the axes, the seeds each may have, and where a run may stop.

    Features of one axis lie between 0 and 1. `tolerance` is in the metric's unit; values are such that more is better.
    """

    features_CA: Array
    seeds: tuple[int, ...]
    shares: tuple[float, ...]  # of a run's budget, rising; the last one is 1
    tolerance: float
    confidence: float = 0.9


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """What is believed of the candidates: which one to choose, and how likely each is to be right.

    `choice` is the likeliest of those that have a whole run, `leader` of all; `right` belongs to the choice.
    """

    choice: int | None
    leader: int
    right: float
    right_C: Array
    mean_C: Array
    sd_C: Array


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What a search may still do: runs' budgets left, candidates it may begin in all, and those it has to leave."""

    runs: float = math.inf
    candidates: int | None = None
    excluded: frozenset[int] = frozenset()


NO_LIMITS = Limits()


class Search:
    """Decides on jobs, one after another: a pure function of what was seen, in its order. What it keeps saves work.

    `key` decides on the draws together with the number of the job.
    """

    def __init__(self, problem: Problem, key: int = 0) -> None:
        self.problem, self._key = problem, key
        self._fits: list[tuple[int, Shape]] = []  # (observations, the shape fitted to so many)
        self._known: tuple[Seen, ...] = ()

    def shape(self, seen: Sequence[Seen]) -> Shape:
        """The shape fitted to the last of 8, 10, 13, 16, ... observations that are there."""
        if tuple(seen[: len(self._known)]) != self._known:
            self._fits = []
        self._known = tuple(seen)
        features_CA, tolerance = self.problem.features_CA, self.problem.tolerance
        at, shape = self._fits[-1] if self._fits else (0, prior_shape(features_CA.shape[1]))
        due = max(FITTED_FROM, math.ceil(at * FITTED_EVERY))
        while due <= min(len(seen), MOST_SEEN):
            first = thinned(seen[:due], MOST_FITTED)
            values, _, spread = standardised(first, tolerance)
            shape = fitted(features_CA, places_of(first), values, replace(shape, error=error_of(first) / spread))
            self._fits.append((due, shape))
            due = max(due + 1, math.ceil(due * FITTED_EVERY))
        return shape

    def is_decided(self, standing: Standing, seen: Sequence[Seen]) -> bool:
        """Whether the choice is right with the confidence that is asked for, and that can be known.

        With fewer than REPEATS whole runs of the choice the noise between seeds is hardly known.
        """
        whole = sum(one.share >= 1 and one.candidate == standing.choice for one in seen)
        return standing.right >= self.problem.confidence and whole >= REPEATS

    def decide(
        self, seen: Sequence[Seen], pending: Sequence[Job], *, number: int, limits: Limits = NO_LIMITS
    ) -> tuple[Standing, Job | None]:
        """What is believed, and job `number`; None where no contender has anything left to run.

        `pending` are jobs under way: they count as if they had shown what is expected.
        """
        problem = self.problem
        begun = {one.candidate for one in seen} | {job.candidate for job in pending}
        count = len(problem.features_CA)
        closed = limits.candidates is not None and len(begun) >= limits.candidates
        allowed = np.asarray([
            index not in limits.excluded and (index in begun or not closed) for index in range(count)
        ])  # fmt: skip
        kept = thinned(seen, MOST_SEEN)
        values, centre, spread = standardised(kept, problem.tolerance)
        shape = replace(self.shape(seen), error=error_of(kept) / spread)
        beliefs = Beliefs(problem.features_CA, places_of(kept), values, shape).expecting(places_of(pending))
        rng, tolerance = np.random.default_rng([self._key, number]), problem.tolerance / spread
        mean, sd = beliefs.marginals(at_the_end(np.arange(count)))
        contenders = np.flatnonzero(allowed)
        if len(contenders) > CONTENDERS:
            promise = (mean + 2 * sd)[contenders]
            contenders = np.sort(contenders[np.argsort(-promise, kind="stable")[:CONTENDERS]])
        draws_SC = np.full((SAMPLES, count), -math.inf)
        draws_SC[:, contenders] = drawn(*beliefs.worth(at_the_end(contenders)), rng)
        right = (draws_SC >= draws_SC.max(axis=1, keepdims=True) - tolerance).mean(axis=0)
        leader = int(right.argmax())
        run = sorted({one.candidate for one in seen if one.share >= 1 and allowed[one.candidate]})
        choice = max(run, key=lambda index: (right[index], mean[index])) if run else None
        standing = Standing(
            choice=choice,
            leader=leader,
            right=0.0 if choice is None else float(right[choice]),
            right_C=right,
            mean_C=mean * spread + centre,
            sd_C=sd * spread,
        )
        best = draws_SC.argmax(axis=1)
        challengers = best[_beaten(draws_SC, best, leader, tolerance)]
        runs = _Runs(problem, seen, pending, limits.runs)
        job = self._job(beliefs, standing, challengers, runs, rng)
        if job is None:  # the contenders have all that they can have: the likeliest of the others
            others = (runs.options(int(index)) for index in np.argsort(-right, kind="stable") if allowed[index])
            job = next((options[0][0] for options in others if options), None)
        return standing, job

    def _job(
        self,
        beliefs: Beliefs,
        standing: Standing,
        challengers: NDArray[np.int64],
        runs: _Runs,
        rng: np.random.Generator,
    ) -> Job | None:
        """The job that tells leader and a challenger apart best per completion.

        A challenger is drawn as often as it is probably better than the leader by more than the tolerance. A leader
        that would be chosen, but for a whole run, gets that; and one does before the budget is spent.
        """
        leader = standing.leader
        own = runs.options(leader)
        finishing = [(cost, job) for job, cost in own if job.share >= 1]
        late = standing.choice is None and runs.left < LAST_RUNS
        if (standing.choice != leader and finishing) and (late or standing.right_C[leader] >= standing.right + FINISH):
            return min(finishing, key=lambda option: option[0])[1]
        challenger = int(challengers[rng.integers(len(challengers))]) if len(challengers) else leader
        if standing.choice == leader and standing.right >= self.problem.confidence:
            return self._repeat([leader, challenger], runs)
        options = own if challenger == leader else [*own, *runs.options(challenger)]
        if not options:
            return None
        pair = Places([leader, challenger], [-1, -1], [1.0, 1.0])
        covariance, variance = beliefs.informs(pair, places_of([job for job, _ in options]))
        told = covariance[0] - covariance[1] if challenger != leader else covariance[0]
        gain = np.square(told) / variance / np.asarray([cost for _, cost in options])
        return options[int(gain.argmax())][0]

    @staticmethod
    def _repeat(contenders: Sequence[int], runs: _Runs) -> Job | None:
        """A whole run of the contender that has fewer: nothing else decides, and they tell how large noise is."""
        options = [
            (runs.whole(one), cost, place, job)
            for place, one in enumerate(dict.fromkeys(contenders))
            for job, cost in runs.options(one)
            if job.share >= 1
        ]
        return min(options, key=lambda option: option[:3])[3] if options else None


class _Runs:
    """The runs so far, and what they may be gone on with."""

    def __init__(self, problem: Problem, seen: Sequence[Seen], pending: Sequence[Job], left: float) -> None:
        self._problem, self.left = problem, left
        self._reached: dict[int, dict[int, float]] = {}
        for candidate, seed, share in [(one.candidate, one.seed, one.share) for one in seen] + [
            (job.candidate, job.seed, job.share) for job in pending
        ]:
            of_candidate = self._reached.setdefault(candidate, {})
            of_candidate[seed] = max(of_candidate.get(seed, 0.0), share)
        self._busy = {(job.candidate, job.seed) for job in pending}

    def whole(self, candidate: int) -> int:
        """How many whole runs a candidate has, those under way included."""
        return sum(share >= 1 for share in self._reached.get(candidate, {}).values())

    def options(self, candidate: int) -> list[tuple[Job, float]]:
        """The jobs that a candidate may get next, each with its cost in runs: going on with a run, or the next seed."""
        reached = self._reached.get(candidate, {})
        new = next((seed for seed in self._problem.seeds if seed not in reached), None)
        begun = [(seed, share) for seed, share in reached.items() if (candidate, seed) not in self._busy]
        return [
            (Job(candidate=candidate, seed=seed, share=share), share - before)
            for seed, before in [*begun, *([] if new is None else [(new, 0.0)])]
            for share in self._problem.shares
            if share > before + SLACK and share - before <= self.left + SLACK
        ]


def _beaten(draws_SC: Array, best_S: NDArray[np.int64], leader: int, tolerance: float) -> NDArray[np.bool_]:
    """The draws in which another candidate is better than the leader by more than the tolerance; if none, at all."""
    ahead = draws_SC[np.arange(len(best_S)), best_S] - draws_SC[:, leader]
    beyond: NDArray[np.bool_] = ahead > tolerance
    return beyond if beyond.any() else ahead > 0


def drawn(mean_C: Array, covariance_CC: Array, rng: np.random.Generator) -> Array:
    """SAMPLES draws of the candidates' worth (S, C)."""
    factor = np.linalg.cholesky(covariance_CC + 1e-6 * np.eye(len(mean_C)))
    draws: Array = mean_C + rng.standard_normal((SAMPLES, len(mean_C))) @ factor.T
    return draws


def thinned(seen: Sequence[Seen], most: int) -> Sequence[Seen]:
    """At most so many observations: all of the candidates that were the best at their last one, in their order.

    Of hundreds of candidates the many that are far behind decide nothing, and each observation costs time.
    """
    if len(seen) <= most:
        return seen
    levels = {share: float(np.median([one.value for one in seen if one.share == share])) for share in
              {one.share for one in seen}}  # fmt: skip
    ahead: dict[int, list[float]] = {}
    for one in seen:
        ahead.setdefault(one.candidate, []).append(one.value - levels[one.share])
    by_rank = sorted(ahead, key=lambda candidate: (-sum(ahead[candidate]) / len(ahead[candidate]), candidate))
    counts = np.cumsum([len(ahead[candidate]) for candidate in by_rank])
    kept = set(by_rank[: max(1, int(np.searchsorted(counts, most, side="right")))])
    return [one for one in seen if one.candidate in kept]


def at_the_end(candidates: NDArray[np.int64]) -> Places:
    """The candidates at their whole budget, whatever the seed."""
    return Places(candidates, np.full(len(candidates), -1), np.ones(len(candidates)))


def places_of(what: Sequence[Seen] | Sequence[Job]) -> Places:
    """Where they are."""
    return Places([one.candidate for one in what], [one.seed for one in what], [one.share for one in what])


def error_of(seen: Sequence[Seen]) -> float:
    """The root mean square of the evaluations' errors; 0 where none is known."""
    return math.sqrt(sum(one.error**2 for one in seen) / len(seen)) if seen else 0.0


def standardised(seen: Sequence[Seen], tolerance: float) -> tuple[Array, float, float]:
    """(values about 0 with spread 1, their centre, their spread), without outliers below.

    How bad a hopeless candidate is does not matter, and a Gaussian process bends for it. The first few may be alike by
    chance, so that the spread is taken to be no less than a few tolerances.
    """
    values = np.asarray([one.value for one in seen], dtype=np.float64)
    shares = np.asarray([one.share for one in seen])
    for share in np.unique(shares):
        at = shares == share
        middle = float(np.median(values[at]))
        values[at] = np.maximum(values[at], middle - 2 * max(float(values[at].max()) - middle, 1e-9))
    centre, spread = (float(values.mean()), float(values.std())) if len(values) else (0.0, 0.0)
    spread = max(spread, LEAST_SPREAD * tolerance)
    return (values - centre) / spread, centre, spread
