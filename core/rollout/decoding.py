"""The sampler: one decode loop over a transformers causal LM.

Each prompt is run once and its KV cache repeated for its K completions; a row that draws the end leaves the batch.
The log-probability recorded for a token is that of the full distribution at the sampling temperature, which is what the
trainer scores: recording it under the top-k/top-p filter would look like a fault that is not there.
Not here: in which mode the model is (core.policies.modes), text (core.policies.causal_lm).

Shape suffixes: P prompts, K completions each, N = P*K rows, S prompt tokens, T completion tokens, L = S + T,
V vocabulary, R rows still drawing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from core.policies.base import Sampling

PLAIN_DECODERS = ("llama", "qwen2", "qwen3")  # read in the tested transformers: a 4-D mask reaches attention unchanged


@dataclass(frozen=True, kw_only=True, slots=True)
class Draws:
    """N rows of up to T drawn tokens; outside the mask stand the first end id and log-prob 0."""

    ids_NT: Tensor
    mask_NT: Tensor
    logprobs_NT: Tensor
    truncated_N: Tensor


def stacked(parts: Sequence[Draws], *, end: int) -> Draws:
    """The rows of all draws under each other, as wide as the widest."""
    if len(parts) == 1:
        return parts[0]
    width = max(part.ids_NT.shape[1] for part in parts)

    def widened(rows_NT: Tensor, fill: float) -> Tensor:
        return torch.nn.functional.pad(rows_NT, (0, width - rows_NT.shape[1]), value=fill)

    return Draws(
        ids_NT=torch.cat([widened(part.ids_NT, end) for part in parts]),
        mask_NT=torch.cat([widened(part.mask_NT, False) for part in parts]),
        logprobs_NT=torch.cat([widened(part.logprobs_NT, 0.0) for part in parts]),
        truncated_N=torch.cat([part.truncated_N for part in parts]),
    )


def positions(mask: Tensor) -> Tensor:
    """Position of every token when the left padding does not count: (rows, tokens) mask -> ids from 0."""
    return (mask.long().cumsum(-1) - 1).clamp(min=0)


def filtered(probs_RV: Tensor, top_k: int, top_p: float) -> Tensor:
    """Probabilities with everything outside top_k and the top_p nucleus at 0 (not renormalised); ties stay."""
    if top_k > 0:
        edge_R1 = probs_RV.topk(min(top_k, probs_RV.shape[-1]), dim=-1).values[:, -1:]
        probs_RV = probs_RV.masked_fill(probs_RV < edge_R1, 0.0)
    if top_p < 1.0:
        sorted_RV = probs_RV.sort(dim=-1, descending=True).values
        before_RV = sorted_RV.cumsum(-1) - sorted_RV
        inside_RV = before_RV < top_p * sorted_RV.sum(-1, keepdim=True)
        edge_R1 = sorted_RV.masked_fill(~inside_RV, 1.0).amin(-1, keepdim=True)
        probs_RV = probs_RV.masked_fill(probs_RV < edge_R1, 0.0)
    return probs_RV


def draw(probs_RV: Tensor, uniform_R: Tensor) -> Tensor:
    """The token at which the cumulative probability first exceeds the row's uniform: (R, V), (R,) -> (R,).

    Inverse CDF: ten times faster than `multinomial` on CPU, and a row's draw depends on its own uniform only. The
    probabilities need not sum to 1.
    """
    cumulative_RV = probs_RV.cumsum(-1, dtype=torch.float64)
    goal_R1 = uniform_R.to(cumulative_RV).unsqueeze(-1) * cumulative_RV[:, -1:]
    tokens_R = torch.searchsorted(cumulative_RV, goal_R1, right=True).squeeze(-1)
    return tokens_R.clamp(max=probs_RV.shape[-1] - 1)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Rows:
    """The rows that are still drawing, R of N: what each needs for its next token."""

    numbers: list[int]  # which of the N
    cache: DynamicCache
    uniforms_RT: Tensor
    next_R1: Tensor  # position of the first drawn token
    seen_RL: Tensor | None  # prompt and drawn tokens that are no padding, to the full width; None: no padding at all
    ready_mask: bool

    def keep(self, places: Sequence[int]) -> _Rows:
        """The rows at these places; the others leave the cache, which is shared."""
        if not places:
            return replace(self, numbers=[])
        kept_R = torch.tensor(places, device=self.next_R1.device)
        self.cache.batch_select_indices(kept_R)
        return replace(
            self,
            numbers=[self.numbers[place] for place in places],
            uniforms_RT=self.uniforms_RT[kept_R],
            next_R1=self.next_R1[kept_R],
            seen_RL=None if self.seen_RL is None else self.seen_RL[kept_R],
        )

    def mask(self, width: int) -> Tensor | None:
        """What the next token sees of `width` tokens: (R, width), or the (R, 1, 1, width) that attention takes."""
        if self.seen_RL is None:
            return None
        seen = self.seen_RL[:, :width]
        return seen[:, None, None] if self.ready_mask else seen


@dataclass(frozen=True, kw_only=True, slots=True)
class _Step:
    """One token of every row that was still drawing."""

    numbers: list[int]
    tokens_R: Tensor
    logprobs_R: Tensor


def takes_ready_mask(config: Any) -> bool:
    """Whether the model hands a ready (rows, 1, 1, keys) mask to attention as it is.

    Working one out of the 2-D mask costs transformers a sixth of a small model's token. But layers with a sliding
    window see less than the whole row, eager attention adds its mask instead of choosing by it, and some families read
    more than padding from the 2-D mask: whoever is not known to be plain gets that one.
    """
    kinds = getattr(config, "layer_types", None) or ["full_attention"]
    plain = set(kinds) == {"full_attention"} and getattr(config, "sliding_window", None) is None
    return plain and config.model_type in PLAIN_DECODERS and config._attn_implementation == "sdpa"


def decode(
    model: Any, prompt_ids_PS: Tensor, prompt_mask_PS: Tensor, *, how: Sampling, uniforms_NT: Tensor, end_ids: Tensor
) -> Draws:
    """K completions of each left-padded prompt, K = rows of uniforms_NT / P; rows of a group adjacent."""
    (_, width), limit, ends = prompt_ids_PS.shape, how.max_completion_length, set(end_ids.tolist())
    logits_RV, rows = _started(model, prompt_ids_PS, prompt_mask_PS, uniforms_NT)
    steps = []
    for t in range(limit):
        tokens_R, logprobs_R = _drawn(logits_RV, rows.uniforms_RT[:, t], how)
        steps.append(_Step(numbers=rows.numbers, tokens_R=tokens_R, logprobs_R=logprobs_R))
        going = [place for place, token in enumerate(tokens_R.tolist()) if token not in ends]
        if len(going) < len(rows.numbers):
            rows = rows.keep(going)
            tokens_R = tokens_R[going]
        if not going or t + 1 == limit:
            break
        logits_RV = model(
            input_ids=tokens_R.unsqueeze(-1),
            attention_mask=rows.mask(width + t + 1),
            position_ids=rows.next_R1 + t,
            past_key_values=rows.cache,
            use_cache=True,
        ).logits[:, -1]
    return _draws(steps, n=len(uniforms_NT), end=int(end_ids[0]), truncated=rows.numbers)


def _started(model: Any, ids_PS: Tensor, mask_PS: Tensor, uniforms_NT: Tensor) -> tuple[Tensor, _Rows]:
    """The logits of every row's first token, (N, V), from one forward per prompt; and the rows, all of them drawing."""
    n, limit = uniforms_NT.shape
    k, cache = n // len(ids_PS), DynamicCache()
    logits_PV = model(
        input_ids=ids_PS,
        attention_mask=mask_PS,
        position_ids=positions(mask_PS),
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=1,
    ).logits[:, -1]
    seen_PL = torch.nn.functional.pad(mask_PS.bool(), (0, limit), value=True)
    # A model that drops its cache also sees no more than one token: a mask for all of them would not fit.
    ready = takes_ready_mask(model.config) and cache.get_seq_length() == ids_PS.shape[1]
    cache.batch_repeat_interleave(k)
    return logits_PV.repeat_interleave(k, 0), _Rows(
        numbers=list(range(n)),
        cache=cache,
        uniforms_RT=uniforms_NT.to(ids_PS.device),
        next_R1=mask_PS.long().sum(-1, keepdim=True).repeat_interleave(k, 0),
        seen_RL=None if bool(mask_PS.all()) else seen_PL.repeat_interleave(k, 0),
        ready_mask=ready,
    )


def _drawn(logits_RV: Tensor, uniform_R: Tensor, how: Sampling) -> tuple[Tensor, Tensor]:
    """One token for each row and its log-prob under the unfiltered distribution, (R,) each."""
    logprobs_RV = torch.log_softmax(logits_RV.float() / how.temperature, dim=-1)
    tokens_R = draw(filtered(logprobs_RV.exp(), how.top_k, how.top_p), uniform_R)
    return tokens_R, logprobs_RV.gather(-1, tokens_R.unsqueeze(-1)).squeeze(-1)


def _draws(steps: Sequence[_Step], *, n: int, end: int, truncated: Sequence[int]) -> Draws:
    """The steps side by side, by one assignment for all: one per token would cost as much as drawing it."""
    device = steps[0].tokens_R.device
    row_at = torch.tensor([number for step in steps for number in step.numbers], device=device)
    step_at = torch.tensor([t for t, step in enumerate(steps) for _ in step.numbers], device=device)
    ids_NT = torch.full((n, len(steps)), end, device=device)
    mask_NT = torch.zeros((n, len(steps)), dtype=torch.bool, device=device)
    logprobs_NT = torch.zeros((n, len(steps)), device=device)
    ids_NT[row_at, step_at] = torch.cat([step.tokens_R for step in steps])
    mask_NT[row_at, step_at] = True
    logprobs_NT[row_at, step_at] = torch.cat([step.logprobs_R for step in steps])
    truncated_N = torch.zeros(n, dtype=torch.bool, device=device)
    truncated_N[list(truncated)] = True
    return Draws(ids_NT=ids_NT, mask_NT=mask_NT, logprobs_NT=logprobs_NT, truncated_N=truncated_N)
