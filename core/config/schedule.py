"""A number that moves with the stage's step, and falls where its evaluations no longer get better."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from core.config.part import Count, NonNegative, Part, PositiveInt, refusal

Shape = Literal["linear", "cosine", "exponential"]
EvalMetric = Literal["eval/reward", "eval/valid"]


class PlateauSpec(Part):
    """Multiply a number by `factor` after `patience` of the stage's evaluations without `metric` getting better."""

    metric: EvalMetric = "eval/reward"
    patience: PositiveInt
    factor: Annotated[float, Field(gt=0, lt=1)] = 0.5
    min_delta: NonNegative = 0.0


class Schedule(Part):
    """From `start` (before the stage's first step) to `end` over `steps` steps, then flat; a plain number is constant.

    `warmup` steps of a linear rise from 0 to `start` come first; the first step is not at 0. `plateau` takes a factor
    off whatever that gives, for every plateau so far.
    """

    start: NonNegative
    end: NonNegative
    steps: Count = 0
    shape: Shape = "linear"
    warmup: Count = 0
    plateau: PlateauSpec | None = None

    @model_validator(mode="before")
    @classmethod
    def _number_is_constant(cls, value: Any) -> Any:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return {"start": value, "end": value, "steps": 0}
        return value

    @model_validator(mode="after")
    def _exponential_needs_positive(self) -> Schedule:
        if self.shape == "exponential" and not (self.start > 0 and self.end > 0):
            raise refusal(
                "shape", "got exponential to or from 0; allowed: exponential between numbers > 0, else linear"
            )
        return self

    @model_validator(mode="after")
    def _moving_takes_steps(self) -> Schedule:
        if self.start != self.end and self.steps == 0:
            raise refusal("steps", "got 0 between two numbers; allowed: the steps from start to end, at least 1")
        return self

    @model_validator(mode="after")
    def _plateau_has_something_to_reduce(self) -> Schedule:
        if self.plateau is not None and not self.ever:
            raise refusal("plateau", "got a plateau of a number that is 0 throughout; allowed: null")
        return self

    @model_serializer(mode="wrap")
    def _constant_is_a_number(self, handler: SerializerFunctionWrapHandler) -> Any:
        return self.start if self.constant else handler(self)

    @property
    def constant(self) -> bool:
        """Whether it never moves."""
        return self.start == self.end and self.warmup == 0 and self.plateau is None

    @property
    def ever(self) -> bool:
        """Whether it is above 0 at any step."""
        return self.start > 0 or self.end > 0


def _positive(schedule: Schedule) -> Schedule:
    for key, value in (("start", schedule.start), ("end", schedule.end)):
        if value <= 0:
            raise refusal(key, f"got {value:g}; allowed: a number > 0")
    return schedule


PositiveSchedule = Annotated[Schedule, AfterValidator(_positive)]


def constant(value: float) -> Schedule:
    """The schedule that is always `value`."""
    return Schedule(start=value, end=value)
