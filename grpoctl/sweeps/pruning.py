"""When a trial is given up: pure functions of its curve and of the curves of trials that ended before it.

What is here: the rules, and the unit they compare in. What is not: which trials may be looked at (driver), and how a
run is told (grpoctl.executors). Imports no optuna: its pruners compare at equal steps, forget the trials they pruned,
and lose the best one too often on noisy curves (benchmarks/pruning.py measures all of this).

A curve is a sequence of (units, value): units = index of the seed + share of that seed's budget spent, so that 1.25 is
a quarter of the second run. A run's end belongs to that run: 1.0 is the end of the first, not the start of the second.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from statistics import median
from typing import Literal, Protocol

Curve = Sequence[tuple[float, float]]
Direction = Literal["maximize", "minimize"]

_SLACK = 1e-6  # units are written with six digits


class Rule(Protocol):
    """A pruner's name and options (spec.PrunerSpec); an option that the named pruner does not read may be None."""

    @property
    def name(self) -> str: ...
    @property
    def patience(self) -> int | None: ...
    @property
    def warmup(self) -> float | None: ...
    @property
    def min_trials(self) -> int | None: ...
    @property
    def reduction(self) -> int | None: ...


def units(seed_index: int, share: float) -> float:
    """How far a trial is: its seed's index and how much of that run's budget is spent, at most all of it."""
    return round(seed_index + min(1.0, max(0.0, share)), 6)


def permille(at: float) -> int:
    """Units as the whole number that Optuna needs for a step: 1250 is a quarter of the second run."""
    return round(1000 * at)


def decide(
    rule: Rule, curve: Curve, others: Sequence[Curve], total: int, direction: Direction = "maximize"
) -> str | None:
    """Why the trial is given up after the last report of `curve`, in words; None: it goes on.

    `others` are the curves of ended trials, also of pruned and collapsed ones, `total` is the number of runs of a
    trial, and values are as the metric is. Says nothing at the very end, where nothing is left to save.
    """
    mine = [point for point in curve if math.isfinite(point[1])]
    if not mine or mine[-1][0] >= total - _SLACK:
        return None
    ended = [other for other in others if other]
    sign = 1.0 if direction == "maximize" else -1.0
    if rule.name == "patient-median":
        return _patient_median(rule, mine, ended, sign)
    if rule.name == "successive-halving":
        return _successive_halving(rule, mine, ended, (total, sign))
    return None


def standing(curve: Curve, at: float) -> float | None:
    """The mean over the seeds so far of the last value each had by then; None without one of the seed under way.

    A curve that ended before `at` keeps the standing it ended with. Leaving it out instead would raise the bar with
    every trial that is given up, until it takes an above-average trial to survive.
    """
    ends, seeds, means = _running(tuple(curve))
    if not ends or at >= ends[-1]:
        return means[-1] if ends else None
    index = bisect_right(ends, at + _SLACK) - 1
    return means[index] if index >= 0 and seeds[index] == _seed(at) else None


@lru_cache(maxsize=8192)  # an ended curve is looked at again at every report of every later trial
def _running(curve: tuple[tuple[float, float], ...]) -> tuple[list[float], list[int], list[float]]:
    """Of the finite reports: the units, the seed's index, and the standing at each."""
    last: dict[int, float] = {}
    ends, seeds, means = [], [], []
    for at, value in curve:
        if math.isfinite(value):
            seed = _seed(at)
            last[seed] = value
            ends.append(at)
            seeds.append(seed)
            means.append(math.fsum(last.values()) / len(last))
    return ends, seeds, means


def _patient_median(rule: Rule, curve: Curve, others: Sequence[Curve], sign: float) -> str | None:
    """Given up where the last `patience` reports, all after `warmup`, each stand below the median of the others."""
    patience, warmup, min_trials = rule.patience or 1, rule.warmup or 0.0, rule.min_trials or 1
    if len(curve) < patience:
        return None
    mine = bar = math.nan
    for at, _ in curve[-patience:]:
        reached = sum(other[-1][0] >= at - _SLACK for other in others)
        if at < warmup - _SLACK or reached < min_trials:
            return None
        standings = list(_standings(others, at))
        mine, bar = standing(curve, at) or 0.0, median(standings) if standings else -sign * math.inf
        if sign * mine >= sign * bar:
            return None
    worse = "below" if sign > 0 else "above"
    return (
        f"{worse} the median of {len(others)} trials at {patience} evaluations in a row: "
        f"{mine:.4g} against {bar:.4g} after {curve[-1][0]:.3g} runs"
    )


def _successive_halving(rule: Rule, curve: Curve, others: Sequence[Curve], scale: tuple[int, float]) -> str | None:
    """Given up at the first report past a rung where it is not among the best one in `reduction` that got there."""
    total, sign = scale
    reduction, at = rule.reduction or 2, curve[-1][0]
    before = curve[-2][0] if len(curve) > 1 else 0.0
    rung = total / reduction ** max(1, math.ceil(math.log(total / at, reduction) - _SLACK))  # the last one reached
    if rung <= before + _SLACK or rung < (rule.warmup or 0.0) - _SLACK:
        return None
    reached = [other for other in others if other[-1][0] >= rung - _SLACK]
    standings = sorted((sign * value for value in _standings(reached, at)), reverse=True)
    mine = standing(curve, at) or 0.0
    places = max(1, (len(standings) + 1) // reduction)
    better = sum(value > sign * mine for value in standings)
    if better < places:
        return None
    place = f"number {better + 1} of {len(standings) + 1}"
    return f"at the rung of {rung:.3g} runs {mine:.4g} is {place}; the best {places} go on"


def _standings(others: Sequence[Curve], at: float) -> Iterator[float]:
    found = (standing(other, at) for other in others)
    return (value for value in found if value is not None)


def _seed(at: float) -> int:
    """Index of the seed a point belongs to."""
    return max(0, math.ceil(at - _SLACK) - 1)
