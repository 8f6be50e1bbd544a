"""The base of every part of a spec, and the field types they share."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer
from pydantic_core import PydanticCustomError


class _Late:
    """The type of LATE."""


LATE: Final = _Late()
"""Marks a key that was added after specs had been hashed: `key: Annotated[Type, LATE] = default`.

While it stands at its default it is left out of the written spec and so of its hash: runs and studies made before the
key existed keep their identity.
"""


class Part(BaseModel):
    """Frozen, strict (no silent "3" -> 3), unknown keys refused, numbers finite."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, validate_default=True, hide_input_in_errors=True
    )

    @model_serializer(mode="wrap")
    def _late_defaults_left_out(self, handler: SerializerFunctionWrapHandler) -> Any:
        tree = handler(self)
        for name, info in type(self).model_fields.items():
            if LATE in info.metadata and getattr(self, name) == info.get_default(call_default_factory=True):
                tree.pop(name, None)
        return tree


def refusal(key: str, problem: str) -> PydanticCustomError:
    """The error a cross-field check raises: `key` (dotted, from the part that checks) is what the user should mend."""
    return PydanticCustomError("cross_field", "{problem}", {"key": key, "problem": problem})


def whole(value: object) -> object:
    """The value, unless it is a bool or float: pydantic's Literal[0, 1] takes True and 1.0 for 1."""
    if isinstance(value, (bool, float)):
        raise PydanticCustomError("int_type", "an integer is needed")
    return value


Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$", max_length=64)]
PositiveInt = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Finite = float  # Part refuses what is not finite
