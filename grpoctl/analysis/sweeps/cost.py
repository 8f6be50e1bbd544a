"""What it costs to come near the best score: in one candidate's run, and in the whole sweep. Pure functions."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.health.statistics import mean
from grpoctl.analysis.sweeps.budget import spent_by, unit_of
from grpoctl.analysis.sweeps.ranking import Ranking

NEAR = 0.02  # of the best score

Curve = tuple[tuple[float, float], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Reached:
    """Where the candidates of a study come within 2 % of its best score."""

    threshold: float
    unit: str  # completions, tokens or trials
    per_run: Mapping[
        int, float
    ]  # trial -> what one of its runs has spent by then; those that never do or collapsed are left out
    first: int  # the trial with which the sweep had a candidate that near
    spent: float  # by all trials up to that one, it included
    total: float  # by the whole sweep so far


def near(document: Mapping[str, Any], ranking: Ranking, *, sign: float) -> Reached | None:
    """The cost to come within 2 % of the best; None where nothing is ranked.

    A candidate has come there at the first evaluation at which the mean over its seeds is within 2 % of the best final
    score (the mean is read along straight lines between evaluations). Trials count in the order they were asked for.
    """
    if ranking.best is None:
        return None
    best = ranking.scores[ranking.best]
    threshold = best - sign * NEAR * abs(best)
    unit, each = unit_of(document)
    trials = document.get("trials") or ()
    per_run = {}
    sound = set(ranking.order) - set(ranking.flagged)
    for trial in trials:
        if int(trial["number"]) in sound:
            share = _share(mean_curve(trial.get("curve") or ()), threshold, sign)
            if share is not None:
                per_run[int(trial["number"])] = share * each
    good = [index for index in ranking.order if sign * (ranking.scores[index] - threshold) >= 0]
    first = min(good)
    spent = {int(trial["number"]): spent_by(trial, unit) for trial in trials}
    return Reached(
        threshold=threshold,
        unit=unit,
        per_run=per_run,
        first=first,
        spent=sum(cost for index, cost in spent.items() if index <= first),
        total=sum(spent.values()),
    )


def seed_curves(points: Sequence[Sequence[float]]) -> list[Curve]:
    """A trial's curve seed by seed, as (share of the run's budget, value); points are (seed, share, value).

    Of evaluations where as much is spent (in a supervised stage, nothing) the last one counts.
    """
    by_seed: dict[float, dict[float, float]] = {}
    for seed, share, value in points:
        by_seed.setdefault(seed, {})[share] = value
    return [tuple(sorted(reports.items())) for reports in by_seed.values()]


def mean_curve(points: Sequence[Sequence[float]]) -> Curve:
    """The mean over seeds of a trial's curve at each share of a run's budget where one of them reported.

    Seeds are read along straight lines, each as far as it came; where some have ended the mean is over the others.
    """
    series = seed_curves(points)
    shares = sorted({share for one in series for share, _ in one})
    curve = []
    for share in shares:
        values = [value for value in (_at(one, share) for one in series) if value is not None]
        if values:
            curve.append((share, mean(values)))
    return tuple(curve)


def _at(points: Sequence[tuple[float, float]], share: float) -> float | None:
    """The value along straight lines; None outside the points."""
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        if x0 <= share <= x1:
            return y0 + (y1 - y0) * (share - x0) / (x1 - x0) if x1 > x0 else y1
    return next((value for x, value in points if x == share), None)


def _share(curve: Curve, threshold: float, sign: float) -> float | None:
    return next((share for share, value in curve if sign * (value - threshold) >= 0), None)
