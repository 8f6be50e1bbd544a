"""Saving `fused_head`: log-probs and entropies of drawn tokens, without the logits of all of them ever being there.

A log-prob is one number, so what it hands back to its hidden state is one vector, known as soon as its logits are:
    d log p(y) / d h = (W[y] - sum_v p(v) W[v]) / temperature
    d entropy  / d h = -(sum_v p(v) (log p(v) + entropy) W[v]) / temperature
The forward works chunk by chunk, keeps these vectors instead of the logits, and the backward only scales them. A head
that is trained itself needs its logits again: its chunks are run anew in the backward. Equal up to rounding.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

CHUNK_BYTES = {"cpu": 2**26, "cuda": 2**28}  # of a chunk's float32 logits


def token_scores(head: Any, hidden_MH: Tensor, ids_M: Tensor, *, temperature: float, entropy: bool) -> list[Tensor]:
    """[log-probs (M,)], and [.., entropies (M,)] where asked for: float32, of the distribution at the temperature.

    `head` gives logits, (rows, H) -> (rows, V).
    """
    size = max(1, CHUNK_BYTES.get(hidden_MH.device.type, CHUNK_BYTES["cpu"]) // (4 * head.weight.shape[0]))
    chunks = zip(torch.split(hidden_MH, size), torch.split(ids_M, size), strict=True)
    if not len(ids_M):
        return [hidden_MH.new_zeros(0, dtype=torch.float32)] * (2 if entropy else 1)
    if _is_fixed(head):
        run: Any = _FixedHead.apply
        parts = [run(h, head.weight, head.bias, ids, (temperature, entropy)) for h, ids in chunks]
    else:
        parts = [_run_again(head, h, ids, temperature, entropy) for h, ids in chunks]
    return [torch.cat(column) for column in zip(*parts, strict=True)]


def logit_scores(logits: Tensor, ids: Tensor, *, temperature: float, entropy: bool) -> list[Tensor]:
    """The same from logits (..., V) that are there, for tokens (...)."""
    logprobs = torch.log_softmax(logits.float() / temperature, dim=-1)
    drawn = logprobs.gather(-1, ids.unsqueeze(-1)).squeeze(-1)
    return [drawn, -(logprobs.exp() * logprobs).sum(-1)] if entropy else [drawn]


def _is_fixed(head: Any) -> bool:
    """True when the head is a plain linear layer, and its weights get no gradient now."""
    trained = torch.is_grad_enabled() and any(parameter.requires_grad for parameter in head.parameters())
    return type(head) is torch.nn.Linear and not trained


def _run_again(head: Any, hidden_RH: Tensor, ids_R: Tensor, temperature: float, entropy: bool) -> tuple[Tensor, ...]:
    def scores(hidden_RH: Tensor) -> tuple[Tensor, ...]:
        return tuple(logit_scores(head(hidden_RH), ids_R, temperature=temperature, entropy=entropy))

    if not torch.is_grad_enabled():
        return scores(hidden_RH)
    checkpointed: tuple[Tensor, ...] = checkpoint(scores, hidden_RH, use_reentrant=False)
    return checkpointed


class _FixedHead(torch.autograd.Function):
    """One chunk: (R, H), weights (V, H), ids (R,) -> log-probs (R,), and entropies where `how` says so."""

    @staticmethod
    def forward(
        ctx: Any, hidden_RH: Tensor, weight_VH: Tensor, bias_V: Tensor | None, ids_R: Tensor, how: tuple[float, bool]
    ) -> tuple[Tensor, ...]:
        temperature, entropy = how
        # In one table from the logits to the weights of the pull: a second of its size costs more than what fills it.
        table_RV = torch.nn.functional.linear(hidden_RH, weight_VH, bias_V).float().div_(temperature)
        table_RV = table_RV.sub_(table_RV.amax(-1, keepdim=True))
        drawn_R = table_RV.gather(-1, ids_R.unsqueeze(-1)).squeeze(-1)
        scaled_RV = table_RV.clone() if entropy else None
        total_R1 = table_RV.exp_().sum(-1, keepdim=True)
        scores, pulls = [drawn_R - total_R1.log().squeeze(-1)], []
        if scaled_RV is not None:
            scaled_RV.sub_(total_R1.log())  # log-probs; the table has the probabilities times the total
            scores.append(-torch.linalg.vecdot(table_RV, scaled_RV) / total_R1.squeeze(-1))
            if ctx.needs_input_grad[0]:
                surprise_RV = scaled_RV.add_(scores[1].unsqueeze(-1)).mul_(table_RV)
                pulls.append(-_weighted(surprise_RV, weight_VH) / (temperature * total_R1))
        if ctx.needs_input_grad[0]:
            # The drawn token's 1 goes in before the product: where p is all but 1, what is left is not rounded off.
            less_RV = table_RV.scatter_add_(-1, ids_R.unsqueeze(-1), -total_R1)
            pulls.insert(0, -_weighted(less_RV, weight_VH) / (temperature * total_R1))
        ctx.save_for_backward(*pulls)
        ctx.dtype = hidden_RH.dtype
        return tuple(scores)

    @staticmethod
    def backward(ctx: Any, *grads_R: Tensor) -> tuple[Tensor | None, ...]:
        whole = sum(grad.unsqueeze(-1) * pull for grad, pull in zip(grads_R, ctx.saved_tensors, strict=True))
        assert isinstance(whole, Tensor)
        return whole.to(ctx.dtype), None, None, None, None


def _weighted(weights_RV: Tensor, weight_VH: Tensor) -> Tensor:
    """sum_v weights[v] * W[v], (R, H), in float32: products in the weights' own dtype, sums in float32."""
    return torch.mm(weights_RV.to(weight_VH.dtype), weight_VH).float()
