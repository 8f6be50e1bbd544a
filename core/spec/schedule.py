"""A number that moves with the step: linear from start to end, then flat."""

from __future__ import annotations

from typing import Any

from pydantic import model_validator

from core.spec.part import Count, Part, Positive


class Schedule(Part):
    """Linear from `start` (before step 1) to `end` over `steps` steps, then flat; a plain number means constant."""

    start: Positive
    end: Positive
    steps: Count = 0

    @model_validator(mode="before")
    @classmethod
    def _number_is_constant(cls, value: Any) -> Any:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return {"start": value, "end": value, "steps": 0}
        return value
