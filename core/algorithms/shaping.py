"""Rewards for what is not the answer: the overlong penalty.

What is NOT here: filters. They look at rewards without shaping, which would make dead groups look live.
"""

from __future__ import annotations

from torch import Tensor


def overlong_penalty(lengths_N: Tensor, *, max_length: int, buffer: int) -> Tensor:
    """0 up to max_length - buffer tokens, then linearly down to -1 at max_length, -1 beyond: (N,) -> (N,), float64.

    DAPO's soft overlong punishment (arXiv 2503.14476, eq. 13); added to the reward.
    Raises: ValueError where buffer is not in 1 ... max_length.
    """
    if not 1 <= buffer <= max_length:
        raise ValueError(f"the overlong buffer is 1 to max_length tokens ({max_length}), got {buffer}")
    return ((max_length - buffer - lengths_N.double()) / buffer).clamp(-1.0, 0.0)
