"""Which keys of a spec hold parts of their own, by their types."""

from __future__ import annotations

from typing import Any, get_args

from pydantic import BaseModel

from grpoctl.config.schema import Field


def has_parts(field: Field) -> bool:
    """True where a key holds a part of the spec, or a mapping of parts."""
    return _has_model(field.annotation)


def _has_model(annotation: Any) -> bool:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return True
    return any(_has_model(inner) for inner in get_args(annotation))
