"""What the rules about inert knobs return, and how they look at a setting."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from core.health.foresight.view import StageView


@dataclass(frozen=True, kw_only=True, slots=True)
class Why:
    """Why a knob does nothing, and what would make it act.

    any_value: at its present value only (False), or at every one. exact: False where rounding or noise still gets
    through.
    """

    reason: str
    acts: str
    any_value: bool = True
    exact: bool = True


Rule = Callable[[StageView], Why | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Inert:
    """A knob that changes nothing, by its dotted key."""

    key: str
    value: object
    reason: str
    acts: str
    exact: bool


def number(value: float) -> str:
    """A number as short as it can be read."""
    return f"{value:.4g}"
