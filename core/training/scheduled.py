"""A spec's schedules and learning rate -> the numbers of one step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from core.algorithms.schedules import learning_rate, plateau_factor, value
from core.config import PlateauSpec, Schedule, StageBase
from core.health.finding import Row
from core.training.clock import Clock


def at(schedule: Schedule, tick: float, table: Sequence[Row] = ()) -> float:
    """The schedule's value at a tick of its stage's clock, of which `table` are the rows so far.

    Step 1 ends at tick 1, and `start` is the value at 0.
    """
    if tick < schedule.warmup:
        planned = schedule.start * tick / schedule.warmup
    else:
        planned = value(schedule.shape, schedule.start, schedule.end, schedule.steps, tick - schedule.warmup)
    return planned * reduced(schedule.plateau, table)


def stage_learning_rate(stage: StageBase, clock: Clock, table: Sequence[Row]) -> float:
    """The learning rate of the step that the clock stands before; `table` are the stage's rows so far."""
    match stage.lr_clock:
        case "steps":
            index = clock.index
        case "updates":
            index = clock.updates
        case _:
            assert_never(stage.lr_clock)
    rate = learning_rate(
        stage.learning_rate,
        stage.lr_scheduler_type,
        index=index,
        warmup_steps=stage.warmup_steps,
        total_steps=stage.lr_horizon,
    )
    return rate * reduced(stage.lr_plateau, table)


def reduced(plateau: PlateauSpec | None, table: Sequence[Row]) -> float:
    """What a number is multiplied by after these rows of its stage; 1 without a plateau's rule."""
    if plateau is None:
        return 1.0
    values = [float(seen) for row in table if (seen := row.get(plateau.metric)) is not None]
    return plateau_factor(values, patience=plateau.patience, factor=plateau.factor, min_delta=plateau.min_delta)
