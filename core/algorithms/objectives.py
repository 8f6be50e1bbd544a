"""The policy objective: a surrogate per token, and how tokens become one number.

Signs: the surrogate is maximised, so what a loss uses is its negative. Denominators are those of the whole optimiser
batch and are handed in: then the gradient does not depend on how the batch is cut into micro-batches.
Shape suffixes: N rows, T factors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Reduction = Literal["sequence_mean", "token_mean"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Surrogate:
    """A surrogate per factor, and where the clip acts: `low_NT` (A < 0, ratio small), `high_NT` (A > 0, large)."""

    values_NT: Tensor
    ratio_NT: Tensor
    low_NT: Tensor
    high_NT: Tensor


def clipped_surrogate(
    new_NT: Tensor, old_NT: Tensor, advantages_N: Tensor, *, epsilon: float, epsilon_high: float
) -> Surrogate:
    """min(rho A, clip(rho, 1 - epsilon, 1 + epsilon_high) A), rho = exp(new - old), to be maximised.

    PPO (arXiv 1707.06347, eq. 7) with the separate upper bound of DAPO (arXiv 2503.14476). new_NT, old_NT: log-probs
    (N, T); only new_NT carries a gradient. advantages_N: (N,), one per row, shared by its factors.
    """
    # The log-ratio is bounded before exp so that one wild token gives a large number, not inf * 0 = NaN.
    ratio_NT = (new_NT - old_NT.detach()).clamp(-20.0, 20.0).exp()
    advantages_N1 = advantages_N.to(new_NT.dtype).unsqueeze(-1)
    clipped_NT = ratio_NT.clamp(1.0 - epsilon, 1.0 + epsilon_high)
    return Surrogate(
        values_NT=torch.minimum(ratio_NT * advantages_N1, clipped_NT * advantages_N1),
        ratio_NT=ratio_NT.detach(),
        low_NT=(ratio_NT < 1.0 - epsilon) & (advantages_N1 < 0),
        high_NT=(ratio_NT > 1.0 + epsilon_high) & (advantages_N1 > 0),
    )


def token_weights(mask_NT: Tensor, reduction: Reduction) -> Tensor:
    """The weight of every factor in the batch mean, from the mask of the WHOLE optimiser batch: (N, T) -> (N, T).

    sequence_mean: 1 / (N_drawn * length of its row), rows with nothing drawn left out (GRPO, arXiv 2402.03300, eq. 3).
    token_mean: 1 / (drawn factors of the batch) (DAPO, arXiv 2503.14476, eq. 8). Either way the weights sum to 1.
    """
    mask = mask_NT.double()
    if reduction == "token_mean":
        return mask / mask.sum().clamp(min=1.0)
    lengths_N1 = mask.sum(-1, keepdim=True)
    rows = (lengths_N1 > 0).sum().clamp(min=1)
    return mask / lengths_N1.clamp(min=1.0) / rows


def weighted_sum(values_NT: Tensor, weights_NT: Tensor) -> Tensor:
    """Sum of values under `token_weights`, a scalar; what stands at weight 0 never matters, NaN included."""
    weights_NT = weights_NT.to(values_NT.dtype)
    return (values_NT.masked_fill(weights_NT == 0, 0.0) * weights_NT).sum()
