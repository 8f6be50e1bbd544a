"""What a study has spent, what is left of its budget, and what it costs to come near its best score. Pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.health.statistics import mean
from grpoctl.analysis.collect import number
from grpoctl.analysis.curves import value_at
from grpoctl.analysis.sweeps.ranking import Ranking
from grpoctl.runs.status import UNDER_WAY

NEAR = 0.02  # of the best score

Curve = tuple[tuple[float, float], ...]  # (share of a run's budget, value)


@dataclass(frozen=True, kw_only=True, slots=True)
class Account:
    """What a study's trials come to. `spent` and `left` are in `unit`; those under way count with the share done."""

    unit: str  # completions, tokens, or trials where the runs have no budget
    total: int  # trials asked for; 0 where that is not known
    ended: int
    by_status: Mapping[str, int]
    spent: float
    left: float  # at most: pruned trials do not spend all of theirs
    likely: float  # what is left, if the trials to come spend as much as those that ended


def unit_of(document: Mapping[str, Any]) -> tuple[str, float]:
    """What the study counts in, and how much of it one run has: (completions, 1024); (trials, 1) without a budget."""
    budget = document.get("budget") or {}
    for unit in ("completions", "tokens"):
        if number(budget.get(unit)):
            return unit, float(budget[unit])
    return "trials", 1.0


def account(document: Mapping[str, Any], running: Mapping[int, float] | None = None) -> Account:
    """The account of a study; `running` maps the number of a trial under way to the share of it that is done."""
    if document.get("allocation") == "adaptive":
        return _account_of_jobs(document)
    unit, each = unit_of(document)
    whole = each * (len(document.get("seeds") or ()) or 1 if unit != "trials" else 1)
    trials = document.get("trials") or ()
    statuses = Counter(str(trial["status"]) for trial in trials)
    spent = [spent_by(trial, unit) for trial in trials if trial["status"] not in UNDER_WAY]
    under_way = sum(whole * share for share in (running or {}).values())
    total = int(document.get("total") or 0)
    to_come = max(total - len(spent), 0)
    typical = sum(spent) / len(spent) if spent else whole
    return Account(
        unit=unit,
        total=total,
        ended=len(spent),
        by_status=statuses,
        spent=sum(spent) + under_way,
        left=max(to_come * whole - under_way, 0.0),
        likely=max(to_come * typical - under_way, 0.0),
    )


def _account_of_jobs(document: Mapping[str, Any]) -> Account:
    """The account of a study under adaptive allocation: its jobs share a budget of trials x seeds runs.

    Jobs count when they have ended: most are an eighth of a run.
    """
    unit, each = unit_of(document)
    unit = "runs" if unit == "trials" else unit
    trials = document.get("trials") or ()
    total = int(document.get("total") or 0)
    done = [job for job in document.get("jobs") or () if "seen" in job]
    spent = each * sum(float(job["share"]) - float(job["from"]) for job in done)
    left = max(each * total * (len(document.get("seeds") or ()) or 1) - spent, 0.0)
    if document.get("status") not in ("RUNNING", "INTERRUPTED"):
        left = 0.0
    return Account(
        unit=unit, total=total, ended=sum(trial["status"] not in UNDER_WAY for trial in trials),
        by_status=Counter(str(trial["status"]) for trial in trials), spent=spent, left=left, likely=left,
    )  # fmt: skip


def spent_by(trial: Mapping[str, Any], unit: str) -> float:
    """What all runs of a trial have spent."""
    return 1.0 if unit == "trials" else number(trial.get(unit)) or 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class NearBest:
    """Where the candidates of a study come within 2 % of its best score."""

    threshold: float
    unit: str  # completions, tokens or trials
    per_run: Mapping[int, float]  # trial -> what a run of it has spent by then; none for those that never come there
    first: int  # the trial with which the sweep had a candidate that near
    spent: float  # by all trials up to that one, it included
    total: float  # by the whole sweep so far


def near(document: Mapping[str, Any], ranking: Ranking, *, sign: float) -> NearBest | None:
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
            curve = mean_curve(trial.get("curve") or ())
            share = next((share for share, value in curve if sign * (value - threshold) >= 0), None)
            if share is not None:
                per_run[int(trial["number"])] = share * each
    first = min(index for index in ranking.order if sign * (ranking.scores[index] - threshold) >= 0)
    spent = {int(trial["number"]): spent_by(trial, unit) for trial in trials}
    return NearBest(
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
    shares = sorted({share for curve in series for share, _ in curve})
    points_of_mean = []
    for share in shares:
        values = [value for value in (value_at(curve, share) for curve in series) if value is not None]
        if values:
            points_of_mean.append((share, mean(values)))
    return tuple(points_of_mean)
