"""One setting that a sweep varies: a list of values, or a range. Which points several make is not here (space)."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from core.config import Part
from core.config.part import refusal
from grpoctl.config.identity import canonical

Number = int | float


class Axis(Part):
    """One setting that is varied: a list of values, or a range of numbers. `when` says at which values of others."""

    values: Annotated[tuple[Any, ...], Field(strict=False)] | None = None
    low: Number | None = None
    high: Number | None = None
    log: bool = False
    step: Number | None = None
    type: Literal["int", "float"] | None = None  # of a range; int where all its numbers are
    when: dict[str, Annotated[tuple[Any, ...], Field(strict=False, min_length=1)]] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _list_is_values(cls, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return {"values": value}
        if not isinstance(value, dict):
            return value
        found = dict(value)
        if isinstance(when := found.get("when"), dict):
            found["when"] = {key: below if isinstance(below, (list, tuple)) else [below] for key, below in when.items()}
        ends = [found.get("low"), found.get("high")]
        if None not in ends and found.get("type") is None:
            numbers = [*ends, *([found["step"]] if found.get("step") is not None else [])]
            found["type"] = "int" if all(isinstance(number, int) for number in numbers) else "float"
        return found

    @model_validator(mode="after")
    def _list_or_range(self) -> Axis:
        if self.values is not None:
            self._check_values(self.values)
        elif self.low is None or self.high is None:
            key = "high" if self.low is not None else "low" if self.high is not None else "values"
            raise refusal(key, "is missing; allowed: a list of values, or a range with low and high")
        else:
            self._check_range(self.low, self.high)
        return self

    def _check_values(self, values: tuple[Any, ...]) -> None:
        for key in ("low", "high", "step", "type"):
            if getattr(self, key) is not None:
                raise refusal(key, "stands beside values; allowed: a list of values, or a range")
        if self.log:
            raise refusal("log", "stands beside values; allowed: a list of values, or a range")
        if not values:
            raise refusal("values", "got an empty list; allowed: at least one value")
        seen: set[str] = set()
        for value in values:
            text = canonical(value)
            if text in seen:
                raise refusal("values", f"got {text} twice; allowed: each value once")
            seen.add(text)

    def _check_range(self, low: Number, high: Number) -> None:
        if low >= high:
            raise refusal("low", f"got {low}; allowed: below high = {high}")
        if self.log and low <= 0:
            raise refusal("low", f"got {low}; allowed with log: a number > 0")
        if self.type == "int" and not all(isinstance(number, int) for number in (low, high, self.step or 1)):
            raise refusal("type", "got int for a range that is not of integers; allowed: float")
        if self.step is None:
            return
        if self.log:
            raise refusal("step", "stands beside log; allowed: one of them, or a list of values")
        if self.step <= 0:
            raise refusal("step", f"got {self.step}; allowed: a number > 0")
        if (Decimal(str(high)) - Decimal(str(low))) % Decimal(str(self.step)):
            raise refusal(
                "step", f"got {self.step}, which does not lead from {low} to {high}: the top value is tried too"
            )
