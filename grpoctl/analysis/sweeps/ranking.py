"""Which candidate is best, how sure that is, and which ones cannot be told apart from it.

What is here: pure functions from a study's trials to numbers. What is not: running trials and what a single seed is
worth (grpoctl.sweeps), and what is said about the numbers (findings).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from core.health.statistics import CONFIDENCE, Interval, mean, sample_sd, t_quantile
from grpoctl.analysis.collect import number

Trial = Mapping[str, Any]

SOUND = "COMPLETED"  # all seeds ended by themselves
STOPPED_BY_GUARD = frozenset({"COLLAPSED", "INVALID_ROLLOUT"})
RANKED = STOPPED_BY_GUARD | {SOUND}


@dataclass(frozen=True, kw_only=True, slots=True)
class Noise:
    """The standard deviation between the seeds of one candidate, pooled over the study, and its degrees of freedom."""

    sd: float
    df: int

    def interval(self, centre: float, n: int) -> Interval:
        """centre +- t(df) * sd / sqrt(n), at 95 %."""
        half = _t((1 + CONFIDENCE) / 2, self.df) * self.sd / math.sqrt(n)
        return (centre - half, centre + half)


@dataclass(frozen=True, kw_only=True, slots=True)
class Ranking:
    """The candidates that ran to an end of their own or were stopped by a guard, best first."""

    order: tuple[int, ...]  # trial numbers
    scores: Mapping[int, float]
    intervals: Mapping[int, Interval | None]
    best: int | None
    indistinguishable: tuple[int, ...]  # the best included, in the order of `order`
    flagged: tuple[int, ...]  # some seed collapsed or was invalid: their interval understates what seeds do to them
    noise: Noise | None  # None: no candidate has two seeds to tell noise by
    critical: float | None  # standard errors below the best that rule a candidate out

    def document(self) -> dict[str, object]:
        """What sweep.json keeps: `ranking`, `indistinguishable`."""
        return {"ranking": list(self.order), "indistinguishable": list(self.indistinguishable)}


def ranked(trials: Iterable[Trial], *, direction: str = "maximize", worst: float = 0.0) -> Ranking:
    """The ranking of a study's trials (as sweep.json has them: `number`, `status`, `values`); ties go by number.

    A trial counts when it is COMPLETED, COLLAPSED or INVALID_ROLLOUT; others have no score on the whole budget. The
    score is the mean over the seeds that have a value; without any it is `worst`. Intervals are 95 % ones, with the
    standard deviation pooled over the COMPLETED candidates (a candidate's own, from three seeds, would rank by luck).
    Where a guard stopped a seed the spread is no noise: that candidate stays out of the pool, and is `flagged`.

    `indistinguishable` is Gupta's subset (Technometrics 7, 1965): every candidate i whose score lies less than
    t * sd * sqrt(1/n_best + 1/n_i) behind the best. t is the one-sided quantile at 0.95^(1/(k-1)) for k candidates
    (Sidak; valid for differences that share the best one, by Slepian's inequality), so that the truly best candidate
    is among them in at least 95 of 100 studies, however many candidates there are and although the best one was
    picked by the same numbers. Seeds are taken as independent; where a seed does the same to all candidates the set
    is larger than it need be. Without noise to judge by nothing can be told apart: all candidates are in the set.
    """
    counted = {int(trial["number"]): trial for trial in trials if trial.get("status") in RANKED and trial.get("values")}
    values = {index: seed_values(trial, worst) for index, trial in counted.items()}
    sound = {index for index, trial in counted.items() if trial["status"] == SOUND and None not in trial["values"]}
    scores = {index: mean(found) for index, found in values.items()}
    sign = -1.0 if direction == "maximize" else 1.0
    order = tuple(sorted(scores, key=lambda index: (sign * scores[index], index)))
    noise = pooled([values[index] for index in order if index in sound])
    critical = critical_value(len(order), noise)
    return Ranking(
        order=order,
        scores=scores,
        intervals={
            index: None if noise is None else noise.interval(scores[index], len(values[index])) for index in order
        },
        best=order[0] if order else None,
        indistinguishable=_subset(order, scores, {index: len(values[index]) for index in order}, (noise, critical)),
        flagged=tuple(index for index in order if index not in sound),
        noise=noise,
        critical=critical,
    )


def pooled(groups: Iterable[Sequence[float]]) -> Noise | None:
    """sqrt(sum of squares about each group's own mean / sum(n_i - 1)); None where no group has two values."""
    usable = [group for group in groups if len(group) > 1]
    df = sum(len(group) - 1 for group in usable)
    if df == 0:
        return None
    squares = math.fsum((sample_sd(group) or 0.0) ** 2 * (len(group) - 1) for group in usable)
    return Noise(sd=math.sqrt(squares / df), df=df)


def critical_value(candidates: int, noise: Noise | None) -> float | None:
    """The t that a difference from the best must pass, corrected for `candidates` - 1 comparisons; None: no noise."""
    if noise is None or candidates < 2:
        return None
    return _t(CONFIDENCE ** (1 / (candidates - 1)), noise.df)


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
    unit = critical * noise.sd
    # The tolerance keeps equal scores together where the seeds agree exactly (sd 0) and means round differently.
    slack = 1e-12 * max(1.0, abs(scores[best]))
    return tuple(
        index
        for index in order
        if abs(scores[index] - scores[best]) <= unit * math.sqrt(1 / sizes[best] + 1 / sizes[index]) + slack
    )


def seed_values(trial: Trial, worst: float) -> list[float]:
    """The values of the trial's seeds, those without one left out; `worst` alone where there is none at all."""
    found = [number(value) for value in trial.get("values") or ()]
    return [value for value in found if value is not None] or [worst]


@lru_cache(maxsize=256)  # it is asked for at each tell, and costs a bisection
def _t(p: float, df: int) -> float:
    return t_quantile(p, df)
