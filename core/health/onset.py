"""Before and after: the rows that no update had acted on, and from when on a column has left what it was there.

Rows are drawn before their own update: those up to and including the first update's are the policy a run began with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from core.health.finding import Row, StepTable, sampled, steps_of

HOLD = 3  # values in a row: fewer are chance
Beyond = Callable[[float, float], bool]  # (what it was at the start, what it is) -> whether it has left


@dataclass(frozen=True, kw_only=True, slots=True)
class Onset:
    """When a column left for good: the first such step, and the updates that had acted by then."""

    metric: str
    step: int
    updates: int
    before: float  # its mean before any update acted
    after: float  # its median from that step on


def acted(row: Row) -> bool:
    """Whether the step's update moved weights: it was applied, at a rate that is not 0."""
    rate = row.get("learning_rate")
    if "update" in row:
        return row["update"] == 1 and rate != 0
    return bool(rate) and row.get("grad_norm") != 0  # a log without update marks: one at every step


def number(row: Row, metric: str) -> float | None:
    """The value of a column where it is a finite number."""
    value = row.get(metric)
    return value if value is not None and math.isfinite(value) else None


def parted(table: StepTable) -> tuple[list[Row], list[tuple[int, Row]]]:
    """The rows drawn before an update acted, the evaluation before step 1 included; and the later ones that sampled
    something, each with the number of updates that had acted before it.
    """
    before, after, count = [row for row in table if (row.get("step") or 0) < 1], list[tuple[int, Row]](), 0
    for row in steps_of(table):
        if count == 0:
            before.append(row)
        elif sampled(row) or "reward/mean" in row:
            after.append((count, row))
        count += acted(row)
    return before, after


def onset(table: StepTable, metric: str, beyond: Beyond, *, start: str | None = None) -> Onset | None:
    """From when on the column has left its start for good: HOLD values in a row, and most of those that follow.

    None where it has not, or where it is not known before an update acted. `start` is a column of the evaluation before
    step 1 that has the same meaning; it is taken where it is there, being of more completions.
    """
    before, after = parted(table)
    known = [value for row in before if (value := number(row, start or metric)) is not None][:1] if start else []
    known = known or [value for row in before if (value := number(row, metric)) is not None]
    points = [(count, row, value) for count, row in after if (value := number(row, metric)) is not None]
    if not known or len(points) < HOLD:
        return None
    level = fmean(known)
    left = [beyond(level, value) for _, _, value in points]
    for index in range(len(points) - HOLD + 1):
        rest = left[index:]
        if all(rest[:HOLD]) and sum(rest) >= 0.8 * len(rest):
            count, row, _ = points[index]
            middle = median(value for _, _, value in points[index:])
            return Onset(metric=metric, step=int(row["step"] or 0), updates=count, before=level, after=middle)
    return None


def standard_errors(before: Sequence[float], after: Sequence[float], *, least: float) -> float:
    """mean(after) - mean(before) in standard errors, signed; the step is the unit.

    Both sides have one spread, pooled, and at least `least`: a policy that repeats itself has next to none. Works with
    one value before, whose own spread nobody knows. 0 where a side is empty or there are fewer than 4 values.
    """
    m, n = len(before), len(after)
    if not m or not n or m + n < 4:
        return 0.0
    squares = sum((one - fmean(side)) ** 2 for side in (before, after) for one in side)
    spread = max(math.sqrt(squares / (m + n - 2)), least)
    gap = fmean(after) - fmean(before)
    return gap / (spread * math.sqrt(1 / m + 1 / n)) if spread > 0 else 0.0
