"""How long texts are: a handful of order statistics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Lengths:
    """Shortest, middle, nine in ten, longest; in whatever unit the lengths had."""

    min: int
    median: int
    p90: int
    max: int


def lengths(values: Sequence[int]) -> Lengths | None:
    """The order statistics of some lengths, each of them one that was there; None for no values."""
    if not values:
        return None
    ordered = sorted(values)
    last = len(ordered) - 1
    return Lengths(min=ordered[0], median=ordered[last // 2], p90=ordered[round(0.9 * last)], max=ordered[-1])
