"""A stage's clock: what schedules, learning rate and the rhythm of evaluations run on, and when the stage is over.

It has `max_steps` ticks. Mostly a tick is a step. In the last stage of a run with a budget it is that share of what the
budget has left where the stage starts, so that a run is annealed and evaluated at equal shares of it, however many
steps that takes. Everything follows from the recorded rows, as does how
long a metric has not got better: what early stopping of a run and of a stage ask.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, assert_never

from core.algorithms.schedules import learning_rate, plateau_factor, value
from core.config import EarlyStoppingSpec, PlateauSpec, RunSpec, Schedule, StageBase
from core.health.finding import Row
from core.training.checkpoint import Progress

Unit = Literal["steps", "completions", "tokens"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Spent:
    """What a step sampled for training, discarded completions counted."""

    completions: int = 0
    tokens: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Clock:
    """Before a step: `used` of the stage's `total` units are behind it, which is `ticks` of the clock.

    `planned` is what the step is expected to take, `updated` what those steps took that made an update; `before` are
    the run's steps before the stage, `left` is what the run's budget (in `paid` units) still has, None without one.
    """

    unit: Unit
    ticks: int
    total: int
    used: int
    planned: float = 1.0
    updated: int = 0
    before: int = 0
    every: int = 1
    paid: Unit = "steps"
    left: int | None = None

    @property
    def index(self) -> float:
        """Ticks before this step, from 0: the learning rate's."""
        return self.ticks * self.used / self.total

    @property
    def updates(self) -> float:
        """Ticks of the steps so far that made an update: the learning rate's under `lr_clock: updates`."""
        return self.ticks * self.updated / self.total

    @property
    def position(self) -> float:
        """Ticks where this step ends, as far as can be told: the schedules', whose `start` is before the first step."""
        return self.ticks * (self.used + self.planned) / self.total

    @property
    def ended(self) -> bool:
        """Whether the stage is over: its total is used up, or the run's budget."""
        return self.used >= self.total or self.spent_all

    @property
    def spent_all(self) -> bool:
        """Whether the run's budget is spent."""
        return self.left is not None and self.left <= 0

    def after(self, spent: Spent) -> Clock:
        """The clock after a step that sampled so much."""
        left = None if self.left is None else self.left - _amount(spent, self.paid)
        return replace(self, used=self.used + _amount(spent, self.unit), left=left)

    def due(self, spent: Spent) -> bool:
        """Whether an evaluation follows a step that sampled so much."""
        after = self.after(spent)
        return after.ended or after._evaluations > self._evaluations

    @property
    def _evaluations(self) -> int:
        """floor((before + ticks so far) / every), in integers."""
        return (self.before * self.total + self.ticks * self.used) // (self.total * self.every)


def clock(spec: RunSpec, progress: Progress, table: Sequence[Row]) -> Clock:
    """The clock of the stage that `progress` stands in; `table` are all rows so far."""
    stages, budget = list(spec.stages.values()), spec.budget
    stage, first = stages[progress.stage], progress.step - progress.stage_step  # row i is of step i
    by_steps = Clock(
        unit="steps",
        ticks=stage.max_steps,
        total=stage.max_steps,
        used=progress.stage_step,
        updated=progress.stage_updates,
        before=first,
        every=spec.evaluation.eval_steps,
    )
    if budget is None:
        return by_steps
    start, now = (_total(table[index], budget.unit) for index in (first, -1))
    limited = replace(by_steps, paid=budget.unit, left=budget.amount - now)
    if progress.stage < len(stages) - 1:
        return limited
    clocked = replace(limited, unit=budget.unit, total=budget.amount - start, used=now - start)
    return replace(
        clocked,
        planned=_planned(clocked, stage, progress.stage_step),
        updated=_updated(table[first:], budget.unit) if stage.lr_clock == "updates" else 0,
    )


def _planned(clocked: Clock, stage: StageBase, steps: int) -> float:
    """What the next step takes: completions are known but for refills; tokens are as many as the steps so far had.

    A first step's tokens are at most rows x max_completion_length, and taken to be one tick at most.
    """
    match clocked.unit:
        case "steps":
            return 1
        case "completions":
            return stage.rows_per_step
        case "tokens":
            first = min(clocked.total / clocked.ticks, stage.rows_per_step * stage.max_completion_length)
            return clocked.used / steps if steps else first
        case _:
            assert_never(clocked.unit)


def _updated(rows: Sequence[Row], unit: Unit) -> int:
    """What the steps took that made an update; the first row is the one before the stage."""
    return sum(_total(row, unit) - _total(before, unit) for before, row in pairwise(rows) if row.get("update"))


def _total(row: Row, unit: Unit) -> int:
    return int(row.get(unit) or 0)


def _amount(spent: Spent, unit: Unit) -> int:
    match unit:
        case "steps":
            return 1
        case "completions":
            return spent.completions
        case "tokens":
            return spent.tokens
        case _:
            assert_never(unit)


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
    for step, reached in values[1:]:
        if reached > best + spec.min_delta:
            best_step, best, waited = step, reached, 0
        else:
            waited += 1
    return Wait(best=best, best_step=best_step, waited=waited)


def at(schedule: Schedule, tick: float, table: Sequence[Row] = ()) -> float:
    """The schedule's value at a tick of its stage's clock, of which `table` are the rows so far.

    Step 1 ends at tick 1, and `start` is the value at 0.
    """
    factor = reduced(schedule.plateau, table)
    if tick < schedule.warmup:
        return factor * (schedule.start * tick / schedule.warmup)
    return factor * value(schedule.shape, schedule.start, schedule.end, schedule.steps, tick - schedule.warmup)


def stage_learning_rate(stage: StageBase, clock: Clock, table: Sequence[Row]) -> float:
    """The learning rate of the step that the clock stands before; `table` are the stage's rows so far."""
    match stage.lr_clock:
        case "steps":
            index = clock.index
        case "updates":
            index = clock.updates
        case _:
            assert_never(stage.lr_clock)
    return reduced(stage.lr_plateau, table) * learning_rate(
        stage.learning_rate,
        stage.lr_scheduler_type,
        index=index,
        warmup_steps=stage.warmup_steps,
        total_steps=stage.lr_horizon,
    )


def reduced(plateau: PlateauSpec | None, table: Sequence[Row]) -> float:
    """What a number is multiplied by after these rows of its stage; 1 without a plateau's rule."""
    if plateau is None:
        return 1.0
    values = [float(value) for row in table if (value := row.get(plateau.metric)) is not None]
    return plateau_factor(values, patience=plateau.patience, factor=plateau.factor, min_delta=plateau.min_delta)
