"""Rewards and advantages reshaped beside the normaliser: the overlong penalty, and credit weighted by entropy.

The overlong penalty is added to rewards. Filters look at rewards without it: it would make dead groups look live.

Entropy weights multiply advantages: GTPO's of tokens and GRPO-S's of sequences (arXiv 2508.04349). There a success that
was uncertain earns more of the reward, a failure that was certain bears more of the blame, among the completions of one
prompt. There rewards are 0 or 1; here the classes are A > 0 and A < 0, so that graded rewards work, and the weights
multiply the advantage. In a class the mean weight is 1: credit moves, its sum does not.
Shape suffixes: P prompts, K completions, N = P * K rows (prompt by prompt), T factors.
"""

from __future__ import annotations

import torch
from torch import Tensor

from core.algorithms.reductions import row_mean


def overlong_penalty(lengths_N: Tensor, *, max_length: int, buffer: int) -> Tensor:
    """0 up to max_length - buffer tokens, then linearly down to -1 at max_length, -1 beyond: (N,) -> (N,), float64.

    DAPO's soft overlong punishment (arXiv 2503.14476, eq. 13); added to the reward.
    Raises: ValueError where buffer is not in 1 ... max_length.
    """
    if not 1 <= buffer <= max_length:
        raise ValueError(f"the overlong buffer is 1 to max_length tokens ({max_length}), got {buffer}")
    return ((max_length - buffer - lengths_N.double()) / buffer).clamp(-1.0, 0.0)


MIN_ENTROPY = 1e-6  # nats; what is more certain counts as this: a class of zeros has equal weights, and 1 / H is finite


def entropy_token_weights(entropies_NT: Tensor, mask_NT: Tensor, advantages_PK: Tensor, *, share: float) -> Tensor:
    """Weights of every token's advantage: entropies (N, T) nats, mask (N, T), advantages (P, K) -> (N, T), float64.

    (1 - share) + share * n_t * h / sum of h over the class at position t, h = H for A > 0 and 1 / H for A < 0; n_t is
    how many rows of the class drew position t. 1 where A = 0 and off the mask. No gradient.
    """
    shape = (*advantages_PK.shape, -1)
    entropies_PKT = entropies_NT.detach().double().masked_fill(~mask_NT, 0.0).reshape(shape)
    return _weights(entropies_PKT, mask_NT.reshape(shape), advantages_PK, share).reshape(mask_NT.shape)


def entropy_sequence_weights(entropies_NT: Tensor, mask_NT: Tensor, advantages_PK: Tensor, *, share: float) -> Tensor:
    """Weights of every row's advantage, from its mean entropy over drawn tokens: -> (N,), float64.

    As `entropy_token_weights`; n is the size of the class in the group. A row with nothing drawn belongs to none and
    weighs 1.
    """
    shape = (*advantages_PK.shape, 1)
    means_PK1 = row_mean(entropies_NT.detach().double(), mask_NT).reshape(shape)
    return _weights(means_PK1, mask_NT.any(-1).reshape(shape), advantages_PK, share).flatten()


def _weights(entropies_PKX: Tensor, drawn_PKX: Tensor, advantages_PK: Tensor, share: float) -> Tensor:
    entropies_PKX = entropies_PKX.clamp(min=MIN_ENTROPY)
    weights_PKX = torch.ones_like(entropies_PKX)
    for in_class_PK, scores_PKX in (
        (advantages_PK > 0, entropies_PKX),
        (advantages_PK < 0, entropies_PKX.reciprocal()),
    ):
        members_PKX = in_class_PK.unsqueeze(-1) & drawn_PKX
        totals = scores_PKX.masked_fill(~members_PKX, 0.0).sum(1, keepdim=True)
        shares_PKX = members_PKX.sum(1, keepdim=True) * scores_PKX / totals
        weights_PKX = torch.where(members_PKX, 1.0 - share + share * shares_PKX, weights_PKX)
    return weights_PKX
