"""The forward of scoring and learning: rows of a rollout -> the log-probs of their drawn tokens.

A prompt is run once, in one row with all of its completions (fast/attention.py): K completions cost P + K*T tokens
instead of K*(P + T). Their first token is predicted from the prompt's last one, and nothing from their
last, which is not run at all. Nor is padding, on either side, that all of the rows have.

The head (saving `fused_head`) gives log-probs and entropies of drawn tokens without the logits of all of them ever
being there. A log-prob is one number, so what it hands back to its hidden state is one vector, known as soon as its
logits are:
    d log p(y) / d h = (W[y] - sum_v p(v) W[v]) / temperature
    d entropy  / d h = -(sum_v p(v) (log p(v) + entropy) W[v]) / temperature
Its forward works chunk by chunk, keeps these vectors instead of the logits, and its backward only scales them. A head
that is trained itself needs its logits again: its chunks are run anew in the backward. Equal up to rounding.
Not here: modes and weights (core.policies.lm.causal_lm).

Shape suffixes: R rows, G prompts of them, S prompt tokens, T completion tokens, W the widest of these rows, M all drawn
tokens of these rows, H hidden size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.utils.checkpoint import checkpoint

from core.models.devices import to_device
from core.policies.base import Rollout
from core.policies.lm.batches import PromptRows
from core.policies.lm.decoding import position_ids
from core.policies.lm.fast.attention import SharedPrefix, grouped_heads, shared_prefix_attention
from core.policies.lm.fast.decoder_weights import is_plain_decoder, unwrap_adapter
from core.policies.lm.fast.fused_layers import LayerContext, fused_norms, layers_in, one_product
from core.policies.savings import Savings

# With one of these savings the model's own forward is not what runs.
NOT_OWN_FORWARD = ("fused_head", "shared_prompts", "grouped_heads", "one_product", "fused_norms")


@dataclass(frozen=True, kw_only=True, slots=True)
class MicroBatch:
    """Some rows of a rollout, without the padding that they all have; on the CPU, where its shapes are known."""

    prompt_ids_RS: Tensor
    prompt_mask_RS: Tensor
    ids_RW: Tensor
    mask_RW: Tensor
    counts: Sequence[int]  # rows of each prompt
    full: int  # T of the rollout
    temperature: float


def micro_batch(rollout: Rollout, rows: Sequence[int]) -> MicroBatch:
    """These rows of the rollout."""
    index = torch.tensor(list(rows), dtype=torch.long)
    mask_RT, prompt_mask_RS = rollout.mask_NT[index], rollout.actions["prompt_mask"][index]
    width = max(1, int(mask_RT.sum(-1).max()))
    start = prompt_mask_RS.shape[1] - int(prompt_mask_RS.sum(-1).max())
    return MicroBatch(
        prompt_ids_RS=rollout.actions["prompt_ids"][index, start:],
        prompt_mask_RS=prompt_mask_RS[:, start:],
        ids_RW=rollout.actions["ids"][index, :width],
        mask_RW=mask_RT[:, :width],
        counts=torch.unique_consecutive(rollout.prompt_N[index], return_counts=True)[1].tolist(),
        full=mask_RT.shape[1],
        temperature=rollout.how.temperature,
    )


def rows_by_prompt(rollout: Rollout, rows: Sequence[int]) -> list[PromptRows]:
    """The rows as runs of one prompt each."""
    index = list(rows)
    numbers, lengths = rollout.prompt_N[index].tolist(), rollout.mask_NT[index].sum(-1).tolist()
    prompts = rollout.actions["prompt_mask"][index].sum(-1).tolist()
    grouped = [list(group) for _, group in groupby(range(len(index)), key=lambda place: numbers[place])]
    return [
        PromptRows(rows=[index[at] for at in group], lengths=[lengths[at] for at in group], prompt=prompts[group[0]])
        for group in grouped
    ]


def score_rows(model: Any, batch: MicroBatch, *, entropy: bool, savings: Savings) -> list[Tensor]:
    """[log-probs], and [.., entropies] where asked for: (R, T) float32, 0 where nothing was drawn.

    Models whose logits are not simply their head's of the last hidden state go the plain way.
    """
    base, device = unwrap_adapter(model), model.device
    if not any(getattr(savings, name) for name in NOT_OWN_FORWARD) or not is_plain_decoder(base):
        ids_RW, outside_RW = to_device(batch.ids_RW, device), to_device(~batch.mask_RW, device)
        scores = logit_scores(_own_logits(model, batch, device), ids_RW, temperature=batch.temperature, entropy=entropy)
        return [pad(column.masked_fill(outside_RW, 0.0), (0, batch.full - column.shape[1])) for column in scores]
    shares = savings.shared_prompts and max(batch.counts) > 1
    with layers_in(_layer_contexts(base, savings, shares=shares)):
        if shares:
            hidden_RWH = _hidden_shared(base, batch, device, grouped=savings.grouped_heads)
        else:
            hidden_RWH = _hidden_by_row(base.model, batch, device)
    # By numbers that the CPU knows, not by the mask: a GPU would have to say first how many there are.
    drawn_M = batch.mask_RW.flatten().nonzero().squeeze(-1)
    head, ids_M = base.get_output_embeddings(), to_device(batch.ids_RW.flatten()[drawn_M], device)
    hidden_MH = hidden_RWH.flatten(0, 1).index_select(0, to_device(drawn_M, device))
    if savings.fused_head:
        scores = token_scores(head, hidden_MH, ids_M, temperature=batch.temperature, entropy=entropy)
    else:
        scores = logit_scores(head(hidden_MH), ids_M, temperature=batch.temperature, entropy=entropy)
    return [_scatter_drawn(column, batch) for column in scores]


def _layer_contexts(base: Any, savings: Savings, *, shares: bool) -> list[LayerContext]:
    """What the layers run in."""
    contexts = [one_product(base)] if savings.one_product else []
    if savings.fused_norms:
        contexts.append(fused_norms(base))
    if shares:
        return [*contexts, partial(shared_prefix_attention, base)]
    return [*contexts, partial(grouped_heads, base)] if savings.grouped_heads else contexts


def _scatter_drawn(values_M: Tensor, batch: MicroBatch) -> Tensor:
    """The drawn tokens' values where they belong, (R, T)."""
    mask_RT = pad(batch.mask_RW, (0, batch.full - batch.mask_RW.shape[1]))
    at_M = to_device(mask_RT.flatten().nonzero().squeeze(-1), values_M.device)
    return values_M.new_zeros(mask_RT.numel()).index_copy(0, at_M, values_M).view(mask_RT.shape)


def _own_logits(model: Any, batch: MicroBatch, device: torch.device) -> Tensor:
    """(R, W, V), through the model's own forward."""
    ids = torch.cat([batch.prompt_ids_RS, batch.ids_RW], dim=-1)
    mask = torch.cat([batch.prompt_mask_RS, batch.mask_RW.long()], dim=-1)
    logits: Tensor = model(
        **_inputs(ids, mask, device), use_cache=False, logits_to_keep=batch.ids_RW.shape[-1] + 1
    ).logits[:, :-1]
    return logits


def _hidden_by_row(decoder: Any, batch: MicroBatch, device: torch.device) -> Tensor:
    """(R, W, H): what each token of a completion is predicted from, every row with its prompt."""
    ids = torch.cat([batch.prompt_ids_RS, batch.ids_RW[:, :-1]], dim=-1)
    mask = torch.cat([batch.prompt_mask_RS, batch.mask_RW[:, :-1].long()], dim=-1)
    hidden: Tensor = decoder(**_inputs(ids, mask, device), use_cache=False).last_hidden_state
    return hidden[:, batch.prompt_ids_RS.shape[1] - 1 :]


def _inputs(ids: Tensor, mask: Tensor, device: torch.device) -> dict[str, Tensor]:
    """What a transformers model is called with, on its device."""
    named = {"input_ids": ids, "attention_mask": mask, "position_ids": position_ids(mask)}
    return {name: to_device(tensor, device) for name, tensor in named.items()}


def _hidden_shared(base: Any, batch: MicroBatch, device: torch.device, *, grouped: bool) -> Tensor:
    """The same, (R, W, H), every prompt run once: all tokens in one row, the prompts' first.

    Runs under `shared_prefix_attention`.
    """
    counts_G = torch.tensor(batch.counts)
    first_G = counts_G.cumsum(0) - counts_G
    ids_GS, mask_GS, later_RW = batch.prompt_ids_RS[first_G], batch.prompt_mask_RS[first_G], batch.ids_RW[:, :-1]
    at_RW = batch.prompt_mask_RS.sum(-1, keepdim=True) + torch.arange(later_RW.shape[1])
    # Without a mask torch's kernels share keys among heads, and on a GPU none of them but the plainest does in float32.
    masked = device.type == "cuda" and base.dtype.itemsize > 2 and not torch.is_autocast_enabled(device.type)
    prefix = SharedPrefix(mask_GS, batch.counts, later_RW.shape[1], device=device, grouped=grouped, masked=masked)
    hidden_MH = base.model(
        input_ids=to_device(torch.cat([ids_GS.flatten(), later_RW.flatten()]).unsqueeze(0), device),
        position_ids=to_device(torch.cat([position_ids(mask_GS).flatten(), at_RW.flatten()]).unsqueeze(0), device),
        use_cache=False,
        prefix=prefix,
    ).last_hidden_state[0]
    size = hidden_MH.shape[-1]
    of_prompts_GSH = hidden_MH[: ids_GS.numel()].view(*ids_GS.shape, size)
    first_R1H = prefix.repeat_prompts(of_prompts_GSH[:, -1]).unsqueeze(1)
    return torch.cat([first_R1H, hidden_MH[ids_GS.numel() :].view(*later_RW.shape, size)], dim=1)


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
