"""Means over the factors that were really drawn.

Shape suffixes: N rows, T factors. A mask is boolean; what stands where the mask is False never matters, NaN included.
"""

from __future__ import annotations

from torch import Tensor


def masked_sum(values_NT: Tensor, mask_NT: Tensor) -> Tensor:
    """Sum over T of the drawn factors, per row: (N, T) -> (N,)."""
    return values_NT.masked_fill(~mask_NT, 0.0).sum(-1)


def row_mean(values_NT: Tensor, mask_NT: Tensor) -> Tensor:
    """Mean over T of the drawn factors, per row; 0 for a row with none: (N, T) -> (N,)."""
    return masked_sum(values_NT, mask_NT) / mask_NT.sum(-1).clamp(min=1)


def token_mean(values_NT: Tensor, mask_NT: Tensor) -> Tensor:
    """Mean over every drawn factor of the batch, a scalar; 0 where there is none."""
    return masked_sum(values_NT, mask_NT).sum() / mask_NT.sum().clamp(min=1)
