"""How much of a study's budget is spent, what is left, and how long that takes. Drawing it is not here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from grpoctl.analysis.collect import number
from grpoctl.runs.status import UNDER_WAY


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


def spent_by(trial: Mapping[str, Any], unit: str) -> float:
    """What all runs of a trial have spent."""
    return 1.0 if unit == "trials" else number(trial.get(unit)) or 0.0
