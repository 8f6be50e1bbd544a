"""A run's curves as points: which panels a figure has, and long ones thinned out. Nothing is drawn here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from core.health.finding import StepTable, all_invalid, sampled, steps_of

MOST = 400  # points of a curve; of more, as many bins' means
_MARKS = 250  # updates that are marked one by one

Points = tuple[tuple[float, float], ...]  # (step, value)


@dataclass(frozen=True, kw_only=True, slots=True)
class Panel:
    """One axis over the steps. `marked` are points to set apart: all-invalid steps."""

    title: str
    column: str
    train: Points = ()
    evaluation: Points = ()
    errors: tuple[float, ...] = ()  # standard errors of the evaluations; () where one is not known
    marked: Points = ()
    share: bool = False  # between 0 and 1


_PANELS = (  # title, columns that may have it (the first one with values is taken), evaluation
    ("Reward", ("reward/mean",), "eval/reward"),
    ("Valid completions", ("completions/valid",), "eval/valid"),
    ("KL to the reference", ("kl",), None),
    ("Entropy [nats]", ("entropy",), None),
    ("Log-prob gap, sampled against scored [nats]", ("rollout/logprob_gap",), "eval/logprob_gap"),
    ("Std of the advantages", ("advantage/std", "advantage/std_all"), None),
    ("Gradient norm", ("grad_norm",), None),
    ("Loss", ("loss",), "eval/loss"),
)


def panels(table: StepTable) -> list[Panel]:
    """The panels that the table has two values for, in the order of what they tell."""
    found = (_panel(table, title, columns, evaluated) for title, columns, evaluated in _PANELS)
    return [panel for panel in found if len(panel.train) + len(panel.evaluation) > 1]


def updates(table: StepTable) -> tuple[float, ...]:
    """The steps with an update, to be marked; () where every step had one, where none did, and where there are many."""
    rows = steps_of(table)
    known = [row for row in rows if row.get("update") is not None]
    made = tuple(float(row["step"] or 0) for row in known if row["update"] == 1)
    return made if 0 < len(made) < len(known) and len(made) <= _MARKS else ()


def thinned(points: Points, most: int = MOST) -> Points:
    """The points, or the means of as many bins of neighbours as are allowed."""
    if len(points) <= most:
        return points
    edges = [index * len(points) // most for index in range(most + 1)]
    return tuple(_mean(points[a:b]) for a, b in pairwise(edges))


def _panel(table: StepTable, title: str, columns: Sequence[str], evaluated: str | None) -> Panel:
    steps = steps_of(table)
    curves = ((column, _points(steps, column)) for column in columns)
    column, train = next(((name, points) for name, points in curves if points), (columns[0], ()))
    evaluation = _points(table, evaluated) if evaluated else ()
    errors = [row.get(f"{evaluated}_se") for row in table if row.get(evaluated or "") is not None]
    collapsed = [row for row in steps if sampled(row) and all_invalid(row)] if len(train) <= MOST else []
    return Panel(
        title=title,
        column=column,
        train=thinned(train),
        evaluation=thinned(evaluation),
        errors=tuple(e for e in errors if e is not None) if None not in errors and len(evaluation) <= MOST else (),
        marked=_points(collapsed, column),
        share=column == "completions/valid",
    )


def _points(table: StepTable, column: str) -> Points:
    found = ((float(row["step"] or 0), row.get(column)) for row in table)
    return tuple((step, float(value)) for step, value in found if value is not None and math.isfinite(value))


def _mean(points: Points) -> tuple[float, float]:
    return sum(x for x, _ in points) / len(points), sum(y for _, y in points) / len(points)
