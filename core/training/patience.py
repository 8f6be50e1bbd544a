"""How long a metric has not got better: what early stopping of a run and of a stage ask."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from core.config import EarlyStoppingSpec
from core.health.finding import Row


@dataclass(frozen=True, kw_only=True, slots=True)
class Wait:
    """The best evaluation so far, and how many there have been since."""

    best: float
    best_step: int
    waited: int


def wait(table: Sequence[Row], spec: EarlyStoppingSpec) -> Wait | None:
    """Where the last row is an evaluation: how the metric stands; else None. An unsound evaluation has no metric."""
    if not table or table[-1].get(spec.metric) is None:
        return None
    values = [
        (int(row["step"] or 0), float(row[spec.metric] or 0.0)) for row in table if row.get(spec.metric) is not None
    ]
    best_step, best = values[0]
    waited = 0
    for step, value in values[1:]:
        if value > best + spec.min_delta:
            best_step, best, waited = step, value, 0
        else:
            waited += 1
    return Wait(best=best, best_step=best_step, waited=waited)
