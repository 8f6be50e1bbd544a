"""The base of every part of a spec, and the field types they share."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError


class Part(BaseModel):
    """Frozen, strict (no silent "3" -> 3), unknown keys refused, numbers finite."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, validate_default=True, hide_input_in_errors=True
    )


def refusal(key: str, problem: str) -> PydanticCustomError:
    """The error a cross-field check raises: `key` (dotted, from the part that checks) is what the user should mend."""
    return PydanticCustomError("cross_field", "{problem}", {"key": key, "problem": problem})


def whole(value: object) -> object:
    """The value, unless it is a bool or float: pydantic's Literal[0, 1] takes True and 1.0 for 1."""
    if isinstance(value, (bool, float)):
        raise PydanticCustomError("int_type", "an integer is needed")
    return value


PositiveInt = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Finite = float  # Part refuses what is not finite
