"""A spec's schedules and learning rate -> the numbers of one step."""

from __future__ import annotations

from collections.abc import Sequence

from core.algorithms.schedules import learning_rate, plateau_factor, value
from core.health.finding import Row
from core.spec import Schedule, StageBase


def at(schedule: Schedule, step: int) -> float:
    """The schedule's value on a stage's step, counted from 1; `start` is the value before the first."""
    if step < schedule.warmup:
        return schedule.start * step / schedule.warmup
    return value(schedule.shape, schedule.start, schedule.end, schedule.steps, step - schedule.warmup)


def stage_learning_rate(stage: StageBase, *, step: int, updates: int, table: Sequence[Row]) -> float:
    """The learning rate of a stage's step (from 1) after so many updates of it; `table` are the stage's rows so far."""
    rate = learning_rate(
        stage.learning_rate,
        stage.lr_scheduler_type,
        index=updates if stage.lr_clock == "updates" else step - 1,
        warmup_steps=stage.warmup_steps,
        total_steps=stage.lr_horizon,
    )
    if stage.lr_plateau is None:
        return rate
    plateau = stage.lr_plateau
    values = [float(seen) for row in table if (seen := row.get(plateau.metric)) is not None]
    return rate * plateau_factor(values, patience=plateau.patience, factor=plateau.factor, min_delta=plateau.min_delta)
