"""Which candidate is best, how sure that is, and which ones cannot be told apart from it.

What is here: pure functions from a study's trials to numbers. What is not: running trials and what a single seed is
worth (grpoctl.sweeps), and what is said about the numbers (findings).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from core.health.rules.gains import Ruler
from core.health.statistics import CONFIDENCE, Interval, clipped, mean, sample_sd, t_bound, t_quantile
from core.metrics import limits
from grpoctl.analysis import outcome
from grpoctl.analysis.collect import number
from grpoctl.runs.status import RANKED, TrialStatus

Trial = Mapping[str, Any]

FOUND = 0.8  # of studies: a gain that so many of them find is called detectable


@dataclass(frozen=True, kw_only=True, slots=True)
class Noise:
    """What moves a score by chance.

    `sd` is the standard deviation between the seeds of one candidate, pooled over the study, `df` its degrees of
    freedom. `evaluation` is the standard error over prompts of one run's evaluation, with `evaluation_df`; 0 where it
    is not known. Every seed is asked the same prompts, so that more seeds do not make it less.
    """

    sd: float
    df: int
    evaluation: float = 0.0
    evaluation_df: float = math.inf
    limits: tuple[float | None, float | None] = (None, None)  # the least and the most that the metric can be

    @property
    def nothing(self) -> bool:
        """True where each candidate's seeds gave the same numbers: seeds that do nothing tell of no other runs."""
        return self.sd == self.evaluation == 0

    def parts(self, n: int) -> list[tuple[float, float]]:
        """(variance, degrees of freedom) of what moves a mean over n seeds."""
        return [(self.sd**2 / n, float(self.df)), (self.evaluation**2, self.evaluation_df)]

    def interval(self, centre: float, n: int) -> Interval:
        """The 95 % t interval of a mean over n seeds, within what is possible."""
        half = _half(tuple(self.parts(n)))
        return clipped((centre - half, centre + half), *self.limits)

    def apart(self, n: int, other: int) -> float:
        """The standard error of the difference between candidates of n and `other` seeds on the same prompts.

        No smaller than if an evaluation's noise were all there is: seeds that agree better than that agree by luck.
        """
        return max(self.sd, self.evaluation) * math.sqrt(1 / n + 1 / other)


@dataclass(frozen=True, kw_only=True, slots=True)
class Ranking:
    """The candidates that ran to an end of their own or were stopped by a guard, in the order that `by` says."""

    order: tuple[int, ...]  # trial numbers
    scores: Mapping[int, float]
    intervals: Mapping[int, Interval | None]
    best: int | None
    indistinguishable: tuple[int, ...]  # the best included, in the order of `order`
    flagged: tuple[int, ...]  # some seed collapsed or was invalid: their interval understates what seeds do to them
    noise: Noise | None  # None: no candidate has two seeds to tell noise by, or they gave the same numbers
    critical: float | None  # standard errors below the best that rule a candidate out, for the whole sweep
    sizes: Mapping[int, int]  # how many seeds each score is the mean of
    seeds_alike: bool = False  # the seeds of each candidate gave the same numbers
    common_first: bool = False  # a search compared some on the seeds they have in common: not the order of `scores`

    @property
    def by(self) -> str:
        """What `order` goes by."""
        if not self.common_first:
            return "best first"
        return "those with all seeds of the last full round first, by their mean over these"

    @property
    def tested(self) -> bool:
        """True where there is noise to tell candidates apart by; else `indistinguishable` is all that may be best."""
        return self.noise is not None

    @property
    def why_untested(self) -> str:
        """Why there is no noise to tell candidates apart by."""
        return "the seeds of each candidate gave the same numbers" if self.seeds_alike else "one seed per candidate"

    def document(self) -> dict[str, object]:
        """What sweep.json keeps: `ranking`, `indistinguishable` (None where nothing was tested)."""
        alike = list(self.indistinguishable) if self.tested or not self.order else None
        return {"ranking": list(self.order), "indistinguishable": alike}


def ranked(
    trials: Iterable[Trial],
    *,
    direction: str = "maximize",
    worst: float = 0.0,
    ruler: Ruler | None = None,
    believed: Mapping[str, Sequence[float]] | None = None,
) -> Ranking:
    """The ranking of a study's trials (as sweep.json has them: `number`, `status`, `values`); ties go by number.

    A trial counts when it is COMPLETED, COLLAPSED or INVALID_ROLLOUT; others have no score on the whole budget. The
    score is the mean over the seeds that have a value; without any it is `worst`. Intervals are 95 % ones, with the
    standard deviation pooled over the COMPLETED candidates (a candidate's own, from three seeds, would rank by luck)
    and the noise of an evaluation over its prompts (`errors` of the trials). Where a guard stopped a seed the spread is
    no noise: that candidate stays out of the pool, and is `flagged`.

    `indistinguishable` are the candidates less than t standard errors (`Noise.apart`) behind the best. t is the
    two-sided quantile at 0.95^(1/m) for all m = k (k - 1) / 2 pairs of k candidates (Sidak 1967, valid for differences
    that share candidates and one estimate of the noise): where all candidates are equally good, any of them is ruled
    out in at most 5 of 100 studies, however many there are and although the best was picked by the same numbers. Seeds
    are taken as independent; where a seed does the same to all candidates the set is larger than it need be. Without
    noise to judge by nothing can be told apart: all candidates are in the set. Seeds that gave the same numbers, with
    no noise of an evaluation, are none to judge by.

    `believed` (of adaptive allocation) has for a trial's number its mean over the seeds that all of these had when
    the last full round was over. Candidates have different numbers of seeds, also where the budget ended inside a
    round, and the best of their means is more often the luckiest: these come first, by that mean, then the others by
    their score; scores stay means over all seeds.
    """
    counted = {int(trial["number"]): trial for trial in trials if trial.get("status") in RANKED and trial.get("values")}
    values = {index: seed_values(trial, worst) for index, trial in counted.items()}
    sound = {index for index, trial in counted.items() if _is_sound(trial)}
    scores = {index: mean(by_seed) for index, by_seed in values.items()}
    sign = -1.0 if direction == "maximize" else 1.0
    known = believed or {}
    worth = {index: float(known[str(index)][0]) if str(index) in known else scores[index] for index in scores}
    order = tuple(
        sorted(scores, key=lambda index: (bool(known) and str(index) not in known, sign * worth[index], index))
    )
    noise = pooled([values[index] for index in order if index in sound])
    if noise is not None and ruler is not None:
        error = root_mean_square([error for index in sound for error in counted[index].get("errors") or ()])
        noise = replace(
            noise, evaluation=error, evaluation_df=ruler.df, limits=limits(ruler.metric, ruler.reward_range)
        )
    seeds_alike = noise is not None and noise.nothing
    noise = None if seeds_alike else noise
    critical = critical_value(len(order), noise)
    sizes = {index: len(values[index]) for index in order}
    return Ranking(
        order=order,
        scores=scores,
        intervals={index: None if noise is None else noise.interval(scores[index], sizes[index]) for index in order},
        best=order[0] if order else None,
        indistinguishable=_subset(order, scores, sizes, (noise, critical)),
        flagged=tuple(index for index in order if index not in sound),
        noise=noise,
        critical=critical,
        sizes=sizes,
        seeds_alike=seeds_alike,
        common_first=bool(known) and any(str(index) not in known or _moved(worth, scores, index) for index in order),
    )


def _moved(worth: Mapping[int, float], scores: Mapping[int, float], index: int) -> bool:
    """True where a candidate's score is of other seeds than what it is ranked by, which is kept to six digits."""
    return abs(worth[index] - scores[index]) > 1e-6


def _is_sound(trial: Trial) -> bool:
    """True where no guard stopped a seed: each has a value, or was set aside before its end (adaptive allocation)."""
    statuses = list(trial.get("statuses") or ())
    missing = [place for place, value in enumerate(trial["values"]) if value is None]
    aside = all(place < len(statuses) and statuses[place] in ("PRUNED", "INTERRUPTED") for place in missing)
    return bool(trial["status"] == TrialStatus.COMPLETED and aside)


def ruler_of(document: Mapping[str, Any]) -> Ruler:
    """How a study measures: its metric, the prompts of an evaluation, what its rewards can be; as far as it says so."""
    return replace(outcome.ruler_of(document), metric=str(document.get("metric")))


@dataclass(frozen=True, kw_only=True, slots=True)
class LearnedGain:
    """What ranked candidates gained over the model where GRPO begins. `start` is that model's metric, over all of them.

    `unproven` are the candidates whose gain is not beyond noise; that any candidate which gained nothing is left out of
    them has a chance of at most 5 % in a study. `detectable` is the smallest true gain that 4 of 5 such studies would
    have found in a candidate of `seeds` seeds, the most that one has; None where no noise is known.

    With one seed per candidate nothing is `tested`: how far seeds differ is not known. `alone` are then the candidates
    whose one run gained more than the noise of its own prompts; None where that is not known, or more is.
    """

    start: float
    unproven: tuple[int, ...]
    detectable: float | None = None
    seeds: int = 0
    tested: bool = True
    alone: tuple[int, ...] | None = None


def learned(trials: Iterable[Trial], ranking: Ranking, *, direction: str, ruler: Ruler) -> LearnedGain | None:
    """Which candidates can be told from the model where GRPO begins; None where no such evaluation is known.

    The noise of a gain: between seeds, pooled over the candidates that no guard stopped, and over the prompts of the
    evaluations, the candidate's own (`gain_errors`): the answers of one that hardly moves hardly change, and say
    nothing of one that moves. The one-sided quantile is Sidak's for as many candidates as there are. `detectable` has
    the largest of these errors, since a candidate that gains is one that moves. Where no candidate has two seeds there
    is no noise between them to judge by, which is not a noise of 0: nothing is tested, unless a guard stopped all. Nor
    is anything where the seeds of each gave the same numbers, and no noise of an evaluation is known.
    """
    counted = {int(trial["number"]): trial for trial in trials if int(trial["number"]) in ranking.scores}
    gains = {index: by_seed for index, trial in counted.items() if (by_seed := _gains(trial))}
    starts = [
        start for trial in counted.values() for start in map(number, trial.get("starts") or ()) if start is not None
    ]
    if not gains or not starts:
        return None
    sign = -1.0 if direction == "minimize" else 1.0
    between = pooled([gains[index] for index in gains if index not in ranking.flagged])
    errors = {index: root_mean_square(counted[index].get("gain_errors") or ()) for index in gains}
    certain = CONFIDENCE ** (1 / len(gains))

    def parts(seeds: int, error: float) -> tuple[tuple[float, float], ...]:
        between_seeds = [] if between is None else [(between.sd**2 / seeds, float(between.df))]
        return (*between_seeds, (error**2, ruler.df))

    unproven = {
        index
        for index, by_seed in gains.items()
        if index in ranking.flagged or sign * mean(by_seed) <= _half(parts(len(by_seed), errors[index]), certain)
    }
    seeds, start = max(map(len, gains.values())), mean(starts)
    untested = any(len(by_seed) == 1 for by_seed in gains.values()) if between is None else between.nothing
    if untested and (between is None or not any(errors.values())):
        alone = tuple(sorted(gains.keys() - unproven)) if any(errors.values()) else None
        return LearnedGain(start=start, unproven=(), seeds=seeds, tested=False, alone=alone)
    largest = parts(seeds, max((errors[index] for index in gains if index not in ranking.flagged), default=0.0))
    detectable = None if between is None else _half(largest, certain) + _half(largest, FOUND)
    return LearnedGain(start=start, unproven=tuple(sorted(unproven)), detectable=detectable or None, seeds=seeds)


def _gains(trial: Trial) -> list[float]:
    """What each seed that has both gained over the model where GRPO begins."""
    values, starts = trial.get("values") or (), trial.get("starts") or ()
    pairs = [(number(value), number(start)) for value, start in zip(values, starts, strict=False)]
    return [value - start for value, start in pairs if value is not None and start is not None]


def root_mean_square(errors: Iterable[object]) -> float:
    """The root of the mean square of the errors that are known; 0 where none is."""
    known = [error for error in map(number, errors) if error is not None]
    return math.sqrt(mean([error**2 for error in known])) if known else 0.0


def pooled(groups: Iterable[Sequence[float]]) -> Noise | None:
    """sqrt(sum of squares about each group's own mean / sum(n_i - 1)); None where no group has two values."""
    usable = [group for group in groups if len(group) > 1]
    df = sum(len(group) - 1 for group in usable)
    if df == 0:
        return None
    squares = math.fsum((sample_sd(group) or 0.0) ** 2 * (len(group) - 1) for group in usable)
    return Noise(sd=math.sqrt(squares / df), df=df)


def critical_value(candidates: int, noise: Noise | None) -> float | None:
    """The t that a difference must pass, two-sided, for all pairs of so many candidates; None without noise or pair."""
    if noise is None or candidates < 2:
        return None
    pairs = candidates * (candidates - 1) // 2
    return _t((1 + CONFIDENCE ** (1 / pairs)) / 2, noise.df)


def _subset(
    order: Sequence[int],
    scores: Mapping[int, float],
    sizes: Mapping[int, int],
    judged_by: tuple[Noise | None, float | None],
) -> tuple[int, ...]:
    noise, critical = judged_by
    if noise is None or critical is None:
        return tuple(order)
    best = order[0]
    return tuple(
        index
        for index in order
        if abs(scores[index] - scores[best]) <= critical * noise.apart(sizes[best], sizes[index])
    )


def seed_values(trial: Trial, worst: float) -> list[float]:
    """The values of the trial's seeds, those without one left out; `worst` alone where there is none at all."""
    known = [number(value) for value in trial.get("values") or ()]
    return [value for value in known if value is not None] or [worst]


@lru_cache(maxsize=256)  # it is asked for at each tell, and costs a bisection
def _t(p: float, df: int) -> float:
    return t_quantile(p, df)


@lru_cache(maxsize=256)
def _half(parts: tuple[tuple[float, float], ...], p: float = (1 + CONFIDENCE) / 2) -> float:
    return t_bound(parts, p)
