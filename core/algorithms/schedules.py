"""Numbers that move with training: pure functions of an index, never of what happened before."""

from __future__ import annotations

import math
from typing import Literal


def linear(start: float, end: float, steps: int, index: int) -> float:
    """start + (end - start) * index / steps, and `end` from index = steps on (at once where steps is 0)."""
    if index >= steps:
        return end
    return start + (end - start) * index / steps


def learning_rate(
    base: float, kind: Literal["constant", "cosine"], *, index: int, warmup_steps: int, total_steps: int
) -> float:
    """The learning rate at 0-based `index`: linear warm-up from 0, then constant or half a cosine down to 0.

    The indices are those of transformers' get_cosine_schedule_with_warmup: with a warm-up, index 0 gives exactly 0.
    P30's first update moved no weight for this reason.
    """
    if index < warmup_steps:
        return base * index / max(1, warmup_steps)
    if kind == "constant":
        return base
    progress = (index - warmup_steps) / max(1, total_steps - warmup_steps)
    return base * 0.5 * (1.0 + math.cos(math.pi * min(1.0, progress)))
