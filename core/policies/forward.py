"""The forward of scoring and learning: rows of a rollout -> the log-probs of their drawn tokens.

A prompt is run once, in one row with all of its completions (core.models.branches): K completions cost P + K*T tokens
instead of K*(P + T). Their first token is predicted from the prompt's last one, and nothing from their
last, which is not run at all. Nor is padding, on either side, that all of the rows have.
Not here: modes and weights (core.policies.causal_lm), the head (core.policies.head).

Shape suffixes: R rows, G prompts of them, S prompt tokens, T completion tokens, W the widest of these rows, M all drawn
tokens of these rows, H hidden size.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from core.models.attention import grouped_heads
from core.models.branches import Branches, branching
from core.models.lora import one_product
from core.models.norms import fused_norms
from core.models.plain import plain_decoder, under_adapter
from core.policies.base import Rollout
from core.policies.batches import Run
from core.policies.head import of_logits, token_scores
from core.policies.savings import Savings
from core.rollout.decoding import positions

# Savings that are not the model's own forward.
OWN = ("fused_head", "shared_prompts", "grouped_heads", "one_product", "fused_norms")


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """Some rows of a rollout, without the padding that they all have."""

    prompt_ids_RS: Tensor
    prompt_mask_RS: Tensor
    ids_RW: Tensor
    mask_RW: Tensor
    prompt_R: Tensor  # which prompt
    full: int  # T of the rollout
    temperature: float


def part_of(rollout: Rollout, rows: Sequence[int]) -> Part:
    """The part that these rows are."""
    index = torch.tensor(list(rows), device=rollout.mask_NT.device)
    mask_RT, prompt_mask_RS = rollout.mask_NT[index], rollout.actions["prompt_mask"][index]
    width = max(1, int(mask_RT.sum(-1).max()))
    start = prompt_mask_RS.shape[1] - int(prompt_mask_RS.sum(-1).max())
    return Part(
        prompt_ids_RS=rollout.actions["prompt_ids"][index, start:],
        prompt_mask_RS=prompt_mask_RS[:, start:],
        ids_RW=rollout.actions["ids"][index, :width],
        mask_RW=mask_RT[:, :width],
        prompt_R=rollout.prompt_N[index],
        full=mask_RT.shape[1],
        temperature=rollout.how.temperature,
    )


def runs_of(rollout: Rollout, rows: Sequence[int]) -> list[Run]:
    """The rows as runs of one prompt each."""
    index = list(rows)
    numbers, lengths = rollout.prompt_N[index].tolist(), rollout.mask_NT[index].sum(-1).tolist()
    prompts = rollout.actions["prompt_mask"][index].sum(-1).tolist()
    grouped = [list(group) for _, group in groupby(range(len(index)), key=lambda place: numbers[place])]
    return [
        Run(rows=[index[at] for at in group], lengths=[lengths[at] for at in group], prompt=prompts[group[0]])
        for group in grouped
    ]


def scores(model: Any, part: Part, *, entropy: bool, savings: Savings, cache: bool = True) -> list[Tensor]:
    """[log-probs], and [.., entropies] where asked for: (R, T) float32, 0 where nothing was drawn.

    `cache` False: the model keeps no keys and values, as under gradient checkpointing, so every row runs its prompt.
    Models whose logits are not simply their head's of the last hidden state go the plain way.
    """
    base = under_adapter(model)
    if not any(getattr(savings, name) for name in OWN) or not plain_decoder(base):
        found = of_logits(_logits(model, part), part.ids_RW, temperature=part.temperature, entropy=entropy)
        return [pad(one.masked_fill(~part.mask_RW, 0.0), (0, part.full - one.shape[1])) for one in found]
    _, counts_G = torch.unique_consecutive(part.prompt_R, return_counts=True)
    shares = savings.shared_prompts and cache and len(counts_G) < len(part.prompt_R)
    # What checkpointing runs again it runs when this context is over: it must be the same attention then.
    attention = grouped_heads(base) if savings.grouped_heads and cache else nullcontext()
    adapter = one_product(base) if savings.one_product and cache else nullcontext()
    norms = fused_norms(base) if savings.fused_norms and cache else nullcontext()
    with attention, adapter, norms:
        if shares:
            hidden_RWH = _shared(base, part, counts_G, grouped=savings.grouped_heads)
        else:
            hidden_RWH = _plain(base.model, part)
    head, hidden_MH, ids_M = base.get_output_embeddings(), hidden_RWH[part.mask_RW], part.ids_RW[part.mask_RW]
    if savings.fused_head:
        found = token_scores(head, hidden_MH, ids_M, temperature=part.temperature, entropy=entropy)
    else:
        found = of_logits(head(hidden_MH), ids_M, temperature=part.temperature, entropy=entropy)
    return [_placed(one, part) for one in found]


def _placed(values_M: Tensor, part: Part) -> Tensor:
    """The drawn tokens' values where they belong, (R, T)."""
    mask_RT = pad(part.mask_RW, (0, part.full - part.mask_RW.shape[1]))
    return torch.zeros(mask_RT.shape, dtype=values_M.dtype, device=values_M.device).masked_scatter(mask_RT, values_M)


def _logits(model: Any, part: Part) -> Tensor:
    """(R, W, V), through the model's own forward."""
    ids = torch.cat([part.prompt_ids_RS, part.ids_RW], dim=-1)
    mask = torch.cat([part.prompt_mask_RS, part.mask_RW.long()], dim=-1)
    logits: Tensor = model(
        input_ids=ids,
        attention_mask=mask,
        position_ids=positions(mask),
        use_cache=False,
        logits_to_keep=part.ids_RW.shape[-1] + 1,
    ).logits[:, :-1]
    return logits


def _plain(decoder: Any, part: Part) -> Tensor:
    """(R, W, H): what each token of a completion is predicted from, every row with its prompt."""
    ids = torch.cat([part.prompt_ids_RS, part.ids_RW[:, :-1]], dim=-1)
    mask = torch.cat([part.prompt_mask_RS, part.mask_RW[:, :-1].long()], dim=-1)
    hidden: Tensor = decoder(
        input_ids=ids, attention_mask=mask, position_ids=positions(mask), use_cache=False
    ).last_hidden_state
    return hidden[:, part.prompt_ids_RS.shape[1] - 1 :]


def _shared(base: Any, part: Part, counts_G: Tensor, *, grouped: bool) -> Tensor:
    """The same, (R, W, H), every prompt run once: all tokens in one row, the prompts' first."""
    first_G = counts_G.cumsum(0) - counts_G
    ids_GS, mask_GS, later_RW = part.prompt_ids_RS[first_G], part.prompt_mask_RS[first_G], part.ids_RW[:, :-1]
    lengths_R1 = part.prompt_mask_RS.sum(-1, keepdim=True)
    at_RW = lengths_R1 + torch.arange(later_RW.shape[1], device=lengths_R1.device)
    branches = Branches(mask_GS, counts_G.tolist(), later_RW.shape[1], grouped=grouped)
    with branching(base):
        hidden_MH = base.model(
            input_ids=torch.cat([ids_GS.flatten(), later_RW.flatten()]).unsqueeze(0),
            position_ids=torch.cat([positions(mask_GS).flatten(), at_RW.flatten()]).unsqueeze(0),
            use_cache=False,
            branches=branches,
        ).last_hidden_state[0]
    size = hidden_MH.shape[-1]
    of_prompts_GSH = hidden_MH[: ids_GS.numel()].view(*ids_GS.shape, size)
    first_R1H = branches.each(of_prompts_GSH[:, -1]).unsqueeze(1)
    return torch.cat([first_R1H, hidden_MH[ids_GS.numel() :].view(*later_RW.shape, size)], dim=1)
