"""What the run's budget leaves to a stage, and how many steps that makes: bounds, as lengths and refills are unknown.

A completion has between 1 and max_completion_length tokens; a step is sampled between once and max_attempts times.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import assert_never

from core.health.foresight.view import StageView, views


@dataclass(frozen=True, kw_only=True, slots=True)
class Bounds:
    """The least and the most there can be."""

    least: int
    most: int


def room(view: StageView) -> Bounds | None:
    """What of the run's budget is left where the stage starts, 0 or less where nothing is; None without a budget."""
    budget = view.spec.budget
    if budget is None:
        return None
    spent = [_spends(before) for before in views(view.spec) if before.steps_before < view.steps_before]
    most, least = sum(one.most for one in spent), sum(one.least for one in spent)
    return Bounds(least=budget.amount - most, most=budget.amount - least)


def steps(view: StageView) -> Bounds:
    """The steps a stage takes, early stopping aside: as many as it says, or as its run's budget allows."""
    left, own, each = room(view), view.stage.max_steps, of_a_step(view)
    if left is None or each.most == 0:
        return Bounds(least=own, most=own)
    found = Bounds(least=max(0, ceil(left.least / each.most)), most=max(0, ceil(left.most / each.least)))
    return found if view.clocked else Bounds(least=min(own, found.least), most=min(own, found.most))


def of_a_step(view: StageView) -> Bounds:
    """What a step takes of the run's budget, in the budget's unit."""
    rows, budget = view.stage.rows_per_step, view.spec.budget
    if budget is None:
        return Bounds(least=rows, most=rows * view.attempts)
    match budget.unit:
        case "completions":
            longest = 1
        case "tokens":
            longest = view.stage.max_completion_length
        case _:
            assert_never(budget.unit)
    return Bounds(least=rows, most=rows * view.attempts * longest)


def _spends(view: StageView) -> Bounds:
    """What a stage before the last one takes; one that may stop early, a step at least."""
    each, most = of_a_step(view), view.stage.max_steps
    return Bounds(least=each.least * (1 if view.stage.early_stopping else most), most=each.most * most)
