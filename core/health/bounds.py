"""Numbers so large that no training computes in them are taken for what they are in a GPU: no number at all.

A float32 ends at 3e38; a log's text can say 1e300, and sums of squares of that overflow in every rule.
"""

from __future__ import annotations

from dataclasses import replace

from core.health.case import Case, Sample
from core.health.finding import Row
from core.health.trend import HUGE


def bounded(case: Case) -> Case:
    """The case with every number of HUGE or more as None (recorded, and no number); the same case where none is."""
    if not huge(case):
        return case
    return replace(
        case, rows=[_row(row) for row in case.rows], samples=tuple(_sample(sample) for sample in case.samples)
    )


def huge(case: Case) -> int:
    """How many numbers of the case are of HUGE or more; steps are not asked."""
    cells = sum(_is_huge(value) for row in case.rows for name, value in row.items() if name != "step")
    return cells + sum(_is_huge(value) for one in case.samples for value in (one.reward, one.advantage))


def _is_huge(value: float | None) -> bool:
    return value is not None and abs(value) >= HUGE


def _row(row: Row) -> Row:
    return {name: None if name != "step" and _is_huge(value) else value for name, value in row.items()}


def _sample(sample: Sample) -> Sample:
    return replace(
        sample,
        reward=None if _is_huge(sample.reward) else sample.reward,
        advantage=None if _is_huge(sample.advantage) else sample.advantage,
    )
