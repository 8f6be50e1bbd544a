"""Which token a row draws from its logits, and the log-probability recorded for it.

The log-probability is that of the full distribution at the sampling temperature, which is what the trainer scores:
recording it under the top-k/top-p filter would look like a fault that is not there.
Not here: the decode loop (core.policies.lm.decoding), where the uniforms come from (core.randomness).

Shape suffixes: R rows, V vocabulary, B blocks of the vocabulary, C words of one block.
"""

from __future__ import annotations

import torch
from torch import Tensor

from core.policies.base import Sampling

BLOCK = 256  # words: the blocks of a vocabulary are then about as many as the words of a block
JUST_BELOW_1 = 1 - 2.0**-53


def draw_tokens(
    logits_RV: Tensor, uniform_R: Tensor, how: Sampling, *, inverse_cdf: bool = True
) -> tuple[Tensor, Tensor]:
    """One token for each row and its log-prob under the unfiltered distribution, (R,) each, float32.

    The vocabulary is gone through once for its largest logit, once for the exponentials and once for their sum: a whole
    log-softmax, of which one word a row is read, would take twice as long.
    """
    # One table as large as the vocabulary and no more: the allocator hands each back, and gets it page by page again.
    weights_RV = logits_RV.to(torch.float32, copy=True)
    top_R1 = weights_RV.amax(-1, keepdim=True)
    weights_RV.sub_(top_R1)
    if how.temperature != 1:
        weights_RV.div_(how.temperature)
    weights_RV.exp_()
    pick = inverse_cdf_draw if inverse_cdf else multinomial_draw
    tokens_R = pick(filter_probs(weights_RV, how.top_k, how.top_p), uniform_R)
    below_R1 = logits_RV.gather(-1, tokens_R.unsqueeze(-1)).float().sub(top_R1).div_(how.temperature)
    # In float64: a sum's order depends on where the words stand, and a log-prob must not depend on the rows beside it.
    whole_R1 = weights_RV.sum(-1, keepdim=True, dtype=torch.float64)
    return tokens_R, (below_R1 - whole_R1.log()).squeeze(-1).float()


def filter_probs(probs_RV: Tensor, top_k: int, top_p: float) -> Tensor:
    """Probabilities with everything outside top_k and the top_p nucleus at 0 (not renormalised); ties stay."""
    if top_k > 0 or top_p < 1.0:
        probs_RV = probs_RV.contiguous()  # a sort is quick along memory only
    if top_k > 0:
        edge_R1 = probs_RV.topk(min(top_k, probs_RV.shape[-1]), dim=-1).values[:, -1:]
        probs_RV = probs_RV.masked_fill(probs_RV < edge_R1, 0.0)
    if top_p < 1.0:
        sorted_RV = probs_RV.sort(dim=-1, descending=True).values
        before_RV = sorted_RV.cumsum(-1) - sorted_RV
        inside_RV = before_RV < top_p * sorted_RV.sum(-1, keepdim=True)
        edge_R1 = sorted_RV.masked_fill(~inside_RV, torch.inf).amin(-1, keepdim=True)
        probs_RV = probs_RV.masked_fill(probs_RV < edge_R1, 0.0)
    return probs_RV


def inverse_cdf_draw(probs_RV: Tensor, uniform_R: Tensor) -> Tensor:
    """The token at which the cumulative probability first exceeds the row's uniform: (R, V), (R,) -> (R,).

    Inverse CDF: ten times faster than `multinomial` on CPU, and a row's draw depends on its own uniform only. A large
    vocabulary is drawn from in two steps, first a block, then with what is left of the uniform a word of it: cumulative
    sums over two short rows instead of one long. The probabilities need not sum to 1.
    """
    vocabulary = probs_RV.shape[-1]
    if vocabulary <= 4 * BLOCK:
        return _first_above(probs_RV, uniform_R.unsqueeze(-1))[0].squeeze(-1)
    whole = vocabulary // BLOCK * BLOCK
    # In this order quick whether the words of a row or the rows of a word are neighbours in memory.
    sums_BR = probs_RV[:, :whole].reshape(len(probs_RV), -1, BLOCK).transpose(0, 1).sum(-1)
    sums_RB = torch.cat([sums_BR.t(), probs_RV[:, whole:].sum(-1, keepdim=True)], dim=-1)
    block_R1, over_R1 = _first_above(sums_RB, uniform_R.unsqueeze(-1))
    # Rounding may put the uniform on the block's end, behind which is nothing that could be drawn.
    rest_R1 = (1 - over_R1 / sums_RB.gather(-1, block_R1)).clamp(0.0, JUST_BELOW_1)
    words_RC = BLOCK * block_R1 + torch.arange(BLOCK, device=probs_RV.device)
    inside_RC = probs_RV.gather(-1, words_RC.clamp(max=vocabulary - 1)).masked_fill(words_RC >= vocabulary, 0.0)
    word_R1 = BLOCK * block_R1 + _first_above(inside_RC, rest_R1)[0]
    return word_R1.squeeze(-1).clamp(max=vocabulary - 1)


def _first_above(probs_RV: Tensor, uniform_R1: Tensor) -> tuple[Tensor, Tensor]:
    """The first place at which the cumulative sum exceeds this share of the whole, and by how much: (R, 1) each."""
    cumulative_RV = probs_RV.cumsum(-1, dtype=torch.float64)
    goal_R1 = uniform_R1.to(cumulative_RV) * cumulative_RV[:, -1:]
    place_R1 = torch.searchsorted(cumulative_RV, goal_R1, right=True).clamp(max=probs_RV.shape[-1] - 1)
    return place_R1, cumulative_RV.gather(-1, place_R1) - goal_R1


def multinomial_draw(probs_RV: Tensor, uniform_R: Tensor) -> Tensor:
    """The plain way, for comparison: `torch.multinomial`, its generator seeded by the first row's uniform."""
    generator = torch.Generator(probs_RV.device).manual_seed(int(float(uniform_R[0]) * 2**32))
    return torch.multinomial(probs_RV, 1, generator=generator).squeeze(-1)
