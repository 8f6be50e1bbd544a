"""The sampler: one decode loop over a transformers causal LM.

Each prompt is run once for its K completions; a row that draws the end leaves the batch.
Not here: how a token is drawn (drawing.py) and run (fast/decoder_step.py, own_forward.py), in which mode the model is
(modes.py), text (causal_lm.py).

Shape suffixes: P prompts, K completions each, N = P*K rows, S prompt tokens, T completion tokens, L = S + T,
V vocabulary, R rows still drawing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import DynamicCache

from core.models.devices import to_device
from core.policies.base import Sampling
from core.policies.lm.drawing import drawn
from core.policies.lm.fast.cuda_graph import RECORDERS
from core.policies.lm.fast.decoder_step import lean
from core.policies.lm.fast.window_cache import without
from core.policies.lm.own_forward import OwnForward
from core.policies.savings import Savings

ALL = Savings()
LOOK_EVERY = {"cpu": 1, "cuda": 8}  # tokens: asking whether rows have ended makes a GPU wait


class _Listener:
    """Who is told how far a sampling is, over all of its batches."""

    def __init__(self, tell: Callable[[int, int], None]) -> None:
        self._tell, self._before = tell, 0

    def drawn(self, ended: int, token: int) -> None:
        """So many rows of this batch have ended by this token."""
        self._tell(self._before + ended, token)

    def finished(self, rows: int) -> None:
        """The batch is done."""
        self._before += rows


_listener: ContextVar[_Listener | None] = ContextVar("who is told how far a sampling is", default=None)


@contextmanager
def listening(tell: Callable[[int, int], None]) -> Iterator[None]:
    """`tell` is called inside as tokens are drawn: rows that have ended in all, and the token of the batch (from 1)."""
    token = _listener.set(_Listener(tell))
    try:
        yield
    finally:
        _listener.reset(token)


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


class Forward(Protocol):
    """What runs a token of every row that is still drawing."""

    def step(self, tokens_R: Tensor, t: int) -> Tensor:
        """The logits that follow the rows' token number `t`: (R,) -> (R, V)."""

    def keep(self, kept: Tensor) -> None:
        """The rows at these places (a tensor on the CPU) go on, in this order; the others have left."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Step:
    """One token of every row that was still in the batch; which rows those are is known on the CPU."""

    numbers_R: Tensor
    tokens_R: Tensor
    logprobs_R: Tensor


def decode(
    model: Any,
    prompts_PS: tuple[Tensor, Tensor],
    *,
    how: Sampling,
    uniforms_NT: Tensor,
    end_ids: Tensor,
    savings: Savings = ALL,
) -> Draws:
    """K completions of each left-padded prompt (ids, mask), K = rows of uniforms_NT / P; rows of a group adjacent.

    What is given and what is found stands on the CPU, whatever the model runs on.
    """
    limit = how.max_completion_length
    logits_RV, forward = _started(model, prompts_PS, uniforms_NT.shape, savings)
    device = logits_RV.device
    uniforms_RT, ends = to_device(uniforms_NT, device), to_device(end_ids, device)
    numbers_R = torch.arange(len(uniforms_RT))
    over_R = torch.zeros(len(uniforms_RT), dtype=torch.bool, device=device)
    look_every = LOOK_EVERY.get(device.type, 1)
    steps, listener, n = [], _listener.get(), len(uniforms_NT)
    for t in range(limit):
        tokens_R, logprobs_R = drawn(logits_RV, uniforms_RT[:, t], how, inverse_cdf=savings.inverse_cdf)
        steps.append(_Step(numbers_R=numbers_R, tokens_R=tokens_R, logprobs_R=logprobs_R))
        over_R = over_R | (tokens_R.unsqueeze(-1) == ends).any(-1)
        if t + 1 == limit:
            break
        if (t + 1) % look_every == 0:
            over = over_R.tolist()
            if listener is not None:
                listener.drawn(n - len(over) + sum(over), t + 1)
            if all(over):
                break
            if savings.finished_leave and any(over):
                kept = torch.tensor(without(over))
                forward.keep(kept)
                numbers_R, kept_R = numbers_R[kept], to_device(kept, device)
                uniforms_RT, tokens_R, over_R = uniforms_RT[kept_R], tokens_R[kept_R], over_R[kept_R]
        logits_RV = forward.step(tokens_R, t)
    if listener is not None:
        listener.finished(n)
    return _draws(steps, n=n, end_ids=end_ids)


def _started(
    model: Any, prompts_PS: tuple[Tensor, Tensor], shape_NT: Sequence[int], savings: Savings
) -> tuple[Tensor, Forward]:
    """The logits of every row's first token, (N, V), and what runs the others, all rows drawing.

    One forward per prompt, whatever its rows need of it repeated or shared; without that saving one per row.
    """
    n, limit = shape_NT
    k = n // len(prompts_PS[0])
    ids, mask = prompts_PS if savings.shared_prefill else (one.repeat_interleave(k, 0) for one in prompts_PS)
    k, cache, device = n // len(ids), DynamicCache(), model.device
    # As an index and not as the number 1: transformers would cut a view, which makes torch copy the head for each row.
    last = to_device(torch.tensor([ids.shape[1] - 1]), device)
    logits = model(
        input_ids=to_device(ids, device),
        attention_mask=to_device(mask, device),
        position_ids=to_device(positions(mask), device),
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=last,
    ).logits[:, -1]
    # The last token of a row is not run.
    record = RECORDERS.get(device.type) if savings.recorded_steps else None
    found = lean(model, cache, mask, k, limit - 1, record) if savings.lean_steps else None
    return logits.repeat_interleave(k, 0), found or OwnForward(model, cache, mask, k, limit - 1)


def _draws(steps: Sequence[_Step], *, n: int, end_ids: Tensor) -> Draws:
    """The steps side by side, each row up to its first end, by one assignment for all."""
    width = len(steps)
    row_at = torch.cat([step.numbers_R for step in steps])
    step_at = torch.arange(width).repeat_interleave(torch.tensor([len(step.numbers_R) for step in steps]))
    ids_NT = end_ids[0].repeat(n, width)
    logprobs_NT = torch.zeros(n, width)
    ids_NT[row_at, step_at] = torch.cat([step.tokens_R for step in steps]).cpu()
    logprobs_NT[row_at, step_at] = torch.cat([step.logprobs_R for step in steps]).cpu()
    ends_NT = (ids_NT.unsqueeze(-1) == end_ids).any(-1)
    mask_NT = ends_NT.cumsum(-1) - ends_NT.long() == 0  # nothing that came before is an end
    longest = int(mask_NT.sum(-1).max())
    return Draws(
        ids_NT=ids_NT.masked_fill(~mask_NT, int(end_ids[0]))[:, :longest],
        mask_NT=mask_NT[:, :longest],
        logprobs_NT=logprobs_NT.masked_fill(~mask_NT, 0.0)[:, :longest],
        truncated_N=~ends_NT.any(-1),
    )
