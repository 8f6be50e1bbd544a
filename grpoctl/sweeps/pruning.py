"""When a trial is given up: pure functions of its curve and of the curves of trials that ended before it.

What is here: the rules, and the unit they compare in. What is not: which trials may be looked at (driver), and how a
run is told (grpoctl.executors). Imports no optuna: its pruners compare at equal steps, forget the trials they pruned,
and lose the best one too often on noisy curves (benchmarks/pruning.py measures all of this).

A curve is a sequence of (seed, share of that seed's run's budget spent, value). Curves are compared where as much is
spent: at the same share of the run of the same seed. A report before anything is spent (in a supervised stage) decides
nothing: how far the run is cannot be told from it.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import median
from typing import Literal, Protocol, assert_never

Point = tuple[int, float, float]  # seed, share, value
Curve = Sequence[Point]
Place = tuple[int, float]  # index of the seed, share of its run's budget: compared in this order
Direction = Literal["maximize", "minimize"]
PrunerName = Literal["patient-median", "none", "successive-halving"]

_SLACK = 1e-6  # of a share


class Rule(Protocol):
    """A pruner's name and options (spec.PrunerSpec); an option that the named pruner does not read may be None."""

    @property
    def name(self) -> PrunerName: ...
    @property
    def patience(self) -> int | None: ...
    @property
    def warmup(self) -> float | None: ...
    @property
    def min_trials(self) -> int | None: ...
    @property
    def reduction(self) -> int | None: ...


def decide(
    rule: Rule, curve: Curve, others: Sequence[Curve], seeds: Sequence[int], direction: Direction = "maximize"
) -> str | None:
    """Why the trial is given up after the last report of `curve`, in words; None: it goes on.

    `others` are the curves of ended trials, also of pruned and collapsed ones, `seeds` those of every trial's runs in
    their order, and values are as the metric is. Says nothing at the very end, where nothing is left to save.
    """
    order = tuple(seeds)
    mine = _places(curve, order)
    if not mine or _spent(mine[-1]) >= len(order) - _SLACK or curve[-1][1] <= 0:
        return None
    ended = [tuple(other) for other in others if _places(other, order)]
    study = _Study(ended=ended, seeds=order, sign=sign(direction))
    match rule.name:
        case "patient-median":
            return _patient_median(rule, tuple(curve), study)
        case "successive-halving":
            return _successive_halving(rule, tuple(curve), study)
        case "none":
            return None
        case _:
            assert_never(rule.name)


def sign(direction: Direction) -> float:
    """1 where more is better, else -1."""
    match direction:
        case "maximize":
            return 1.0
        case "minimize":
            return -1.0
        case _:
            assert_never(direction)


def standing(curve: Curve, at: Place, seeds: Sequence[int]) -> float | None:
    """The mean over the seeds so far of the last value each had by then; None without one of the seed under way.

    A curve that ended before `at` keeps the standing it ended with. Leaving it out instead would raise the bar with
    every trial that is given up, until it takes an above-average trial to survive.
    """
    places, means = _running(tuple(curve), tuple(seeds))
    if not places or at >= places[-1]:
        return means[-1] if places else None
    index = bisect_right(places, (at[0], at[1] + _SLACK)) - 1
    return means[index] if index >= 0 and places[index][0] == at[0] else None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Study:
    """What a curve is compared with: the curves that ended, the seeds in their order, 1 where more is better or -1."""

    ended: Sequence[Curve]
    seeds: tuple[int, ...]
    sign: float

    def standings(self, curves: Sequence[Curve], at: Place) -> list[float]:
        """The standing of each curve that has one there."""
        standings = (standing(curve, at, self.seeds) for curve in curves)
        return [value for value in standings if value is not None]

    def past(self, spent: float) -> list[Curve]:
        """The curves that have spent so many runs' budgets."""
        return [curve for curve in self.ended if _spent(_places(curve, self.seeds)[-1]) >= spent - _SLACK]


def _places(curve: Curve, seeds: tuple[int, ...]) -> Sequence[Place]:
    """Where the reports stand that may be compared: finite, and after something was spent."""
    return _running(tuple(curve), seeds)[0]


def _spent(place: Place) -> float:
    """How many runs' budgets a trial has spent there: 1.25 is a quarter into the second run."""
    return place[0] + place[1]


@lru_cache(maxsize=8192)  # an ended curve is looked at again at every report of every later trial
def _running(curve: tuple[Point, ...], seeds: tuple[int, ...]) -> tuple[list[Place], list[float]]:
    """Of the reports that may be compared: where they stand, and the standing at each."""
    last: dict[int, float] = {}
    places: list[Place] = []
    means = []
    for seed, share, value in curve:
        if math.isfinite(value) and share > 0:
            last[seed] = value
            places.append((seeds.index(seed), min(1.0, share)))
            means.append(math.fsum(last.values()) / len(last))
    return places, means


def _patient_median(rule: Rule, curve: tuple[Point, ...], study: _Study) -> str | None:
    """Given up where the last `patience` reports, all after `warmup`, each stand below the median of the others."""
    patience, warmup, min_trials = rule.patience or 1, rule.warmup or 0.0, rule.min_trials or 1
    places = _places(curve, study.seeds)
    if len(places) < patience:
        return None
    mine = bar = math.nan
    for at in places[-patience:]:
        reached = sum(_places(other, study.seeds)[-1] >= (at[0], at[1] - _SLACK) for other in study.ended)
        if _spent(at) < warmup - _SLACK or reached < min_trials:
            return None
        standings = study.standings(study.ended, at)
        mine = standing(curve, at, study.seeds) or 0.0
        bar = median(standings) if standings else -study.sign * math.inf
        if study.sign * mine >= study.sign * bar:
            return None
    worse = "below" if study.sign > 0 else "above"
    return (
        f"{worse} the median of {len(study.ended)} trials at {patience} evaluations in a row: "
        f"{mine:.4g} against {bar:.4g} after {_spent(places[-1]):.3g} runs"
    )


def _successive_halving(rule: Rule, curve: tuple[Point, ...], study: _Study) -> str | None:
    """Given up at the first report past a rung where it is not among the best one in `reduction` that got there."""
    reduction, total = rule.reduction or 2, len(study.seeds)
    places = _places(curve, study.seeds)
    spent, before = _spent(places[-1]), _spent(places[-2]) if len(places) > 1 else 0.0
    rung = total / reduction ** max(1, math.ceil(math.log(total / spent, reduction) - _SLACK))  # the last one reached
    if rung <= before + _SLACK or rung < (rule.warmup or 0.0) - _SLACK:
        return None
    standings = study.standings(study.past(rung), places[-1])
    mine = study.sign * (standing(curve, places[-1], study.seeds) or 0.0)
    best = max(1, (len(standings) + 1) // reduction)
    better = sum(study.sign * value > mine for value in standings)
    if better < best:
        return None
    return (
        f"at the rung of {rung:.3g} runs {study.sign * mine:.4g} is number {better + 1} of {len(standings) + 1}; "
        f"the best {best} go on"
    )
