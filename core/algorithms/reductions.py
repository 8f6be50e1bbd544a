"""How the tokens of a batch become one number: means over the drawn factors, a weight per token, the weighted sum.

A mask is boolean; what stands where the mask is False never matters, NaN included.
Denominators are those of the whole optimiser batch: then the gradient does not depend on how the batch is cut into
micro-batches, nor on padding or row order. Shape suffixes: N rows, T factors.
"""

from __future__ import annotations

from typing import assert_never

from torch import Tensor

from core.algorithms.names import Reduction


def masked_sum(values_NT: Tensor, mask_NT: Tensor) -> Tensor:
    """Sum over T of the drawn factors, per row: (N, T) -> (N,)."""
    return values_NT.masked_fill(~mask_NT, 0.0).sum(-1)


def row_mean(values_NT: Tensor, mask_NT: Tensor) -> Tensor:
    """Mean over T of the drawn factors, per row; 0 for a row with none: (N, T) -> (N,)."""
    return masked_sum(values_NT, mask_NT) / mask_NT.sum(-1).clamp(min=1)


def token_mean(values_NT: Tensor, mask_NT: Tensor) -> Tensor:
    """Mean over every drawn factor of the batch, a scalar; 0 where there is none."""
    return masked_sum(values_NT, mask_NT).sum() / mask_NT.sum().clamp(min=1)


def token_weights(mask_NT: Tensor, reduction: Reduction, max_length: int | None = None) -> Tensor:
    """The weight of every factor in the batch's loss, from the mask of the WHOLE optimiser batch: (N, T) -> (N, T).

    sequence_mean: 1 / (N_drawn * length of its row) (GRPO, arXiv 2402.03300, eq. 3); the weights sum to 1.
    token_mean: 1 / (drawn factors of the batch) (DAPO, arXiv 2503.14476, eq. 8); the weights sum to 1.
    constant_length: 1 / (N * max_length) (Dr. GRPO, arXiv 2503.20783); max_length is the budget, not the padded width.
    sequence_sum: 1 / N_drawn (the mean over rows of their sums).
    N_drawn are the rows with anything drawn; an empty row counts only in constant_length's N. Float64, 0 off the mask.
    Raises: ValueError where constant_length has no positive max_length.
    """
    mask = mask_NT.double()
    lengths_N1 = mask.sum(-1, keepdim=True)
    rows = (lengths_N1 > 0).sum().clamp(min=1)
    match reduction:
        case "sequence_mean":
            return mask / lengths_N1.clamp(min=1.0) / rows
        case "token_mean":
            return mask / mask.sum().clamp(min=1.0)
        case "constant_length":
            if max_length is None or max_length < 1:
                raise ValueError(f"reduction constant_length needs a positive max_length, got {max_length}")
            return mask / (max(1, len(mask)) * max_length)
        case "sequence_sum":
            return mask / rows
        case _:
            assert_never(reduction)


def weighted_sum(values_NT: Tensor, weights_NT: Tensor) -> Tensor:
    """Sum of values under `token_weights`, a scalar; what stands at weight 0 never matters, NaN included."""
    weights_NT = weights_NT.to(values_NT.dtype)
    return (values_NT.masked_fill(weights_NT == 0, 0.0) * weights_NT).sum()
