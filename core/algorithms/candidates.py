"""Weights of a prompt's candidates for reward-weighted cross-entropy (RCE).

Shape suffixes: P prompts, K candidates. A missing score is NaN.
"""

from __future__ import annotations

import torch
from torch import Tensor


def candidate_weights(scores_PK: Tensor, *, tau: float, keep: int | None = None) -> Tensor:
    """softmax(score / tau) over each prompt's `keep` best present candidates, else 0: (P, K) -> (P, K), float64.

    A row sums to 1, or to 0 where nothing is present. Among equal scores at the edge the earlier candidate is kept.
    Raises: ValueError where tau is not positive, keep is below 1, or a score is infinite.
    """
    if tau <= 0:
        raise ValueError(f"tau must be positive, got {tau}")
    if keep is not None and keep < 1:
        raise ValueError(f"keep must be at least 1, got {keep}")
    if scores_PK.isinf().any():
        raise ValueError("got an infinite score; scores are finite, or NaN where one could not be computed")
    ranked_PK = scores_PK.double().nan_to_num(-torch.inf)
    places_PK = ranked_PK.argsort(stable=True, dim=-1, descending=True).argsort(-1)
    kept_PK = ~scores_PK.isnan() & (places_PK < (scores_PK.shape[-1] if keep is None else keep))
    best_P1 = ranked_PK.amax(-1, keepdim=True).nan_to_num(neginf=0.0)
    powers_PK = ((ranked_PK - best_P1) / tau).exp().masked_fill(~kept_PK, 0.0)
    return powers_PK / powers_PK.sum(-1, keepdim=True).clamp(min=1.0)  # the best one's power is 1
