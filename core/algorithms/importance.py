"""Weights for a sampler whose log-probs differ from the trainer's.

They correct old / drawn, one policy in two numerics; the surrogate's ratio is new / old. Where the surrogate takes the
sampler's log-probs as old, that ratio already corrects, and these weights would do it twice.
"""

from __future__ import annotations

import torch
from torch import Tensor


def truncated_weights(old_NT: Tensor, drawn_NT: Tensor, cap: float, *, mask_NT: Tensor | None = None) -> Tensor:
    """min(exp(old - drawn), cap) per token, without a gradient: log-probs (N, T) -> (N, T).

    Truncated importance sampling (Ionides 2008; for samplers: arXiv 2510.26788). Given the mask, 1 off it whatever
    stands there, so that multiplying with a weight cannot carry a NaN of the padding.
    """
    gap_NT = (old_NT - drawn_NT).detach()
    if mask_NT is not None:
        gap_NT = gap_NT.masked_fill(~mask_NT, 0.0)
    weights_NT = gap_NT.clamp(max=20.0).exp().clamp(max=cap)
    return weights_NT if mask_NT is None else torch.where(mask_NT, weights_NT, 1.0)
