"""The sampler: one decode loop over a transformers causal LM.

Each prompt is run once and its KV cache repeated for its K completions; a row that draws the end leaves the batch.
Not here: how a token is drawn (core.rollout.drawing), the cache (core.rollout.window), in which mode the model is
(core.policies.modes), text (core.policies.causal_lm).

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
from core.policies.savings import Savings
from core.rollout.drawing import drawn
from core.rollout.window import keep, widen, without

ALL = Savings()
LOOK_EVERY = {"cpu": 1, "cuda": 8}  # tokens: asking whether rows have ended makes a GPU wait
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


@dataclass(frozen=True, kw_only=True, slots=True)
class _Rows:
    """The rows that are still drawing, R of N: what each needs for its next token."""

    numbers_R: Tensor  # which of the N
    cache: DynamicCache
    uniforms_RT: Tensor
    next_R1: Tensor  # position of the first drawn token
    seen_RL: Tensor | None  # prompt and drawn tokens that are no padding, to the full width; None: no padding at all
    ready_mask: bool

    def keep(self, kept_R: Tensor) -> _Rows:
        """The rows at these places; the others leave the cache, which is shared."""
        keep(self.cache, kept_R)
        return replace(
            self,
            numbers_R=self.numbers_R[kept_R],
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
    """One token of every row that was still in the batch."""

    numbers_R: Tensor
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
    model: Any,
    prompts_PS: tuple[Tensor, Tensor],
    *,
    how: Sampling,
    uniforms_NT: Tensor,
    end_ids: Tensor,
    savings: Savings = ALL,
) -> Draws:
    """K completions of each left-padded prompt (ids, mask), K = rows of uniforms_NT / P; rows of a group adjacent."""
    limit = how.max_completion_length
    logits_RV, rows = _started(model, prompts_PS, uniforms_NT, shared=savings.shared_prefill)
    look_every = LOOK_EVERY.get(logits_RV.device.type, 1)
    over_R = torch.zeros(len(uniforms_NT), dtype=torch.bool, device=logits_RV.device)
    steps = []
    for t in range(limit):
        tokens_R, logprobs_R = drawn(logits_RV, rows.uniforms_RT[:, t], how, inverse_cdf=savings.inverse_cdf)
        steps.append(_Step(numbers_R=rows.numbers_R, tokens_R=tokens_R, logprobs_R=logprobs_R))
        over_R = over_R | (tokens_R.unsqueeze(-1) == end_ids).any(-1)
        if t + 1 == limit:
            break
        if (t + 1) % look_every == 0:
            over = over_R.tolist()
            if all(over):
                break
            if savings.finished_leave and any(over):
                kept_R = torch.tensor(without(over), device=over_R.device)
                rows, tokens_R, over_R = rows.keep(kept_R), tokens_R[kept_R], over_R[kept_R]
        logits_RV = model(
            input_ids=tokens_R.unsqueeze(-1),
            attention_mask=rows.mask(prompts_PS[0].shape[1] + t + 1),
            position_ids=rows.next_R1 + t,
            past_key_values=rows.cache,
            use_cache=True,
        ).logits[:, -1]
    return _draws(steps, n=len(uniforms_NT), end_ids=end_ids)


def _started(
    model: Any, prompts_PS: tuple[Tensor, Tensor], uniforms_NT: Tensor, *, shared: bool
) -> tuple[Tensor, _Rows]:
    """The logits of every row's first token, (N, V), and the rows, all of them drawing.

    `shared`: one forward per prompt, its cache repeated; else one per row.
    """
    (n, limit), k = uniforms_NT.shape, len(uniforms_NT) // len(prompts_PS[0])
    ids, mask = prompts_PS if shared else (one.repeat_interleave(k, 0) for one in prompts_PS)
    k, cache = n // len(ids), DynamicCache()
    # As an index and not as the number 1: transformers would cut a view, which makes torch copy the head for each row.
    last = torch.tensor([ids.shape[1] - 1], device=ids.device)
    logits = model(
        input_ids=ids,
        attention_mask=mask,
        position_ids=positions(mask),
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=last,
    ).logits[:, -1]
    # A model that drops its cache also sees no more than one token: a mask for all of them would not fit.
    ready = takes_ready_mask(model.config) and cache.get_seq_length() == ids.shape[1]
    widen(cache, k, limit - 1)  # the last token is not run
    seen = torch.nn.functional.pad(mask.bool(), (0, limit), value=True)
    return logits.repeat_interleave(k, 0), _Rows(
        numbers_R=torch.arange(n, device=ids.device),
        cache=cache,
        uniforms_RT=uniforms_NT.to(ids.device),
        next_R1=mask.long().sum(-1, keepdim=True).repeat_interleave(k, 0),
        seen_RL=None if bool(mask.all()) else seen.repeat_interleave(k, 0),
        ready_mask=ready,
    )


def _draws(steps: Sequence[_Step], *, n: int, end_ids: Tensor) -> Draws:
    """The steps side by side, each row up to its first end, by one assignment for all."""
    device, width = end_ids.device, len(steps)
    row_at = torch.cat([step.numbers_R for step in steps])
    sizes = torch.tensor([len(step.numbers_R) for step in steps], device=device)
    step_at = torch.arange(width, device=device).repeat_interleave(sizes)
    ids_NT = end_ids[0].repeat(n, width)
    logprobs_NT = torch.zeros((n, width), device=device)
    ids_NT[row_at, step_at] = torch.cat([step.tokens_R for step in steps])
    logprobs_NT[row_at, step_at] = torch.cat([step.logprobs_R for step in steps])
    ends_NT = (ids_NT.unsqueeze(-1) == end_ids).any(-1)
    mask_NT = ends_NT.cumsum(-1) - ends_NT.long() == 0  # nothing that came before is an end
    longest = int(mask_NT.sum(-1).max())
    return Draws(
        ids_NT=ids_NT.masked_fill(~mask_NT, int(end_ids[0]))[:, :longest],
        mask_NT=mask_NT[:, :longest],
        logprobs_NT=logprobs_NT.masked_fill(~mask_NT, 0.0)[:, :longest],
        truncated_N=~ends_NT.any(-1),
    )
