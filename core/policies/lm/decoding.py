"""The sampler: one decode loop over a transformers causal LM, and how a row draws its token.

Each prompt is run once for its K completions; a row that draws the end leaves the batch. The log-probability that is
recorded is that of the full distribution at the sampling temperature, which is what the trainer scores: recording it
under a filter (top_k, top_p, min_p, repetition_penalty) would look like a fault that is not there.
Not here: how a token is run where that is quick (fast/decoder_step.py), in which mode the model is and text
(causal_lm.py), where the uniforms come from (core.randomness).

Shape suffixes: P prompts, K completions each, N = P*K rows, S prompt tokens, T completion tokens, L = S + T,
V vocabulary, R rows still drawing, B blocks of the vocabulary, C words of one block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import DynamicCache

from core.models.devices import to_device
from core.policies.base import Rollout, Sampling
from core.policies.lm.fast.decoder_step import RECORDERS, decoder_step
from core.policies.lm.fast.decoder_weights import takes_ready_mask
from core.policies.lm.fast.kv_cache import keep_rows, repeat_with_room, rows_after_leaving
from core.policies.lm.stopping import DrawnStep, Ends, StopWatch
from core.policies.savings import Savings

BLOCK = 256  # words: the blocks of a vocabulary are then about as many as the words of a block
JUST_BELOW_1 = 1 - 2.0**-53


def draw_tokens(
    logits_RV: Tensor, uniform_R: Tensor, how: Sampling, *, seen_RV: Tensor | None = None, inverse_cdf: bool = True
) -> tuple[Tensor, Tensor]:
    """One token for each row and its log-prob under the unfiltered distribution, (R,) each, float32.

    `seen_RV` marks the words that the repetition penalty is for; None where there is none. The vocabulary is gone
    through once for its largest logit, once for the exponentials and once for their sum: a whole log-softmax, of which
    one word a row is read, would take twice as long.
    """
    # One table as large as the vocabulary and no more: the allocator hands each back, and gets it page by page again.
    weights_RV = logits_RV.to(torch.float32, copy=True)
    top_R1 = weights_RV.amax(-1, keepdim=True)
    weights_RV.sub_(top_R1)
    if how.temperature != 1:
        weights_RV.div_(how.temperature)
    weights_RV.exp_()
    pick = inverse_cdf_draw if inverse_cdf else multinomial_draw
    drawn_from_RV = weights_RV if seen_RV is None else penalised_weights(logits_RV, seen_RV, how)
    tokens_R = pick(filter_probs(drawn_from_RV, how.top_k, how.top_p, how.min_p), uniform_R)
    below_R1 = logits_RV.gather(-1, tokens_R.unsqueeze(-1)).float().sub(top_R1).div_(how.temperature)
    # In float64: a sum's order depends on where the words stand, and a log-prob must not depend on the rows beside it.
    whole_R1 = weights_RV.sum(-1, keepdim=True, dtype=torch.float64)
    return tokens_R, (below_R1 - whole_R1.log()).squeeze(-1).float()


def penalised_weights(logits_RV: Tensor, seen_RV: Tensor, how: Sampling) -> Tensor:
    """Unnormalised probabilities (R, V) once the logits of seen words are lowered: positive ones divided by the
    repetition penalty, negative ones multiplied with it (CTRL, arXiv 1909.05858; as transformers does it).
    """
    logits_RV = logits_RV.float()
    penalty = how.repetition_penalty
    lower_RV = torch.where(logits_RV < 0, logits_RV * penalty, logits_RV / penalty)
    weights_RV = torch.where(seen_RV, lower_RV, logits_RV)
    return weights_RV.sub_(weights_RV.amax(-1, keepdim=True)).div_(how.temperature).exp_()


def filter_probs(probs_RV: Tensor, top_k: int, top_p: float, min_p: float = 0.0) -> Tensor:
    """Probabilities (not renormalised; ties stay) with everything at 0 that is outside of top_k or of the top_p
    nucleus, or less than min_p times the most probable one.
    """
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
    if min_p > 0:
        probs_RV = probs_RV.masked_fill(probs_RV < min_p * probs_RV.amax(-1, keepdim=True), 0.0)
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


ALL = Savings()
LOOK_EVERY = {"cpu": 1, "cuda": 8}  # tokens: asking whether rows have ended makes a GPU wait


class _Progress:
    """Tells how far a sampling is, over all of its batches."""

    def __init__(self, tell: Callable[[int, int], None]) -> None:
        self._tell, self._before = tell, 0

    def drawn(self, ended: int, token: int) -> None:
        """So many rows of this batch have ended by this token."""
        self._tell(self._before + ended, token)

    def finished(self, rows: int) -> None:
        """The batch is done."""
        self._before += rows


_progress: ContextVar[_Progress | None] = ContextVar("what is told how far a sampling is", default=None)


@contextmanager
def on_progress(tell: Callable[[int, int], None]) -> Iterator[None]:
    """`tell` is called inside as tokens are drawn: rows that have ended in all, and the token of the batch (from 1)."""
    token = _progress.set(_Progress(tell))
    try:
        yield
    finally:
        _progress.reset(token)


@dataclass(frozen=True, kw_only=True, slots=True)
class DrawnTokens:
    """N rows of up to T drawn tokens; outside the mask stand the first end id and log-prob 0."""

    ids_NT: Tensor
    mask_NT: Tensor
    logprobs_NT: Tensor
    truncated_N: Tensor


def stack_draws(parts: Sequence[DrawnTokens], *, end: int) -> DrawnTokens:
    """The rows of all draws under each other, as wide as the widest."""
    if len(parts) == 1:
        return parts[0]
    width = max(part.ids_NT.shape[1] for part in parts)

    def widened(rows_NT: Tensor, fill: float) -> Tensor:
        return torch.nn.functional.pad(rows_NT, (0, width - rows_NT.shape[1]), value=fill)

    return DrawnTokens(
        ids_NT=torch.cat([widened(part.ids_NT, end) for part in parts]),
        mask_NT=torch.cat([widened(part.mask_NT, False) for part in parts]),
        logprobs_NT=torch.cat([widened(part.logprobs_NT, 0.0) for part in parts]),
        truncated_N=torch.cat([part.truncated_N for part in parts]),
    )


def position_ids(mask: Tensor) -> Tensor:
    """Position of every token when the left padding does not count: (rows, tokens) mask -> ids from 0."""
    return (mask.long().cumsum(-1) - 1).clamp(min=0)


class TokenStep(Protocol):
    """What runs a token of every row that is still drawing."""

    def step(self, tokens_R: Tensor, t: int) -> Tensor:
        """The logits that follow the rows' token number `t`: (R,) -> (R, V)."""

    def keep(self, kept: Tensor) -> None:
        """The rows at these places (a tensor on the CPU) go on, in this order; the others have left."""


class ModelStep:
    """A token through the model's own forward: any causal LM of transformers, each row with its prompt's cache."""

    def __init__(self, model: Any, cache: DynamicCache, mask_PS: Tensor, k: int, limit: int) -> None:
        """`cache` and mask (on the CPU) of the prompts, each for k rows of up to `limit` tokens that are run."""
        # A model that drops its cache also sees no more than one token: a mask for all of them would not fit.
        self._ready = takes_ready_mask(model.config) and cache.get_seq_length() == mask_PS.shape[1]
        self._model, self._cache, self._prompt = model, cache, mask_PS.shape[1]
        repeat_with_room(cache, k, limit)
        self._next_R1 = to_device(mask_PS.long().sum(-1, keepdim=True).repeat_interleave(k, 0), model.device)
        self._seen_RL: Tensor | None = None  # no padding at all
        if not bool(mask_PS.all()):
            seen_PL = torch.nn.functional.pad(mask_PS.bool(), (0, limit), value=True)
            self._seen_RL = to_device(seen_PL.repeat_interleave(k, 0), model.device)

    def step(self, tokens_R: Tensor, t: int) -> Tensor:
        """The logits that follow the rows' token number `t`: (R,) -> (R, V)."""
        logits: Tensor = self._model(
            input_ids=tokens_R.unsqueeze(-1),
            attention_mask=self._mask(self._prompt + t + 1),
            position_ids=self._next_R1 + t,
            past_key_values=self._cache,
            use_cache=True,
        ).logits[:, -1]
        return logits

    def keep(self, kept: Tensor) -> None:
        """The rows at these places; the others leave the cache."""
        kept_R = to_device(kept, self._next_R1.device)
        keep_rows(self._cache, kept, kept_R.device)
        self._next_R1 = self._next_R1[kept_R]
        self._seen_RL = None if self._seen_RL is None else self._seen_RL[kept_R]

    def _mask(self, width: int) -> Tensor | None:
        """What the next token sees of `width` tokens: (R, width), or the (R, 1, 1, width) that attention takes."""
        if self._seen_RL is None:
            return None
        mask = self._seen_RL[:, :width]
        return mask[:, None, None] if self._ready else mask


def decode(
    model: Any,
    prompts_PS: tuple[Tensor, Tensor],
    *,
    how: Sampling,
    uniforms_NT: Tensor,
    ends: Ends,
    savings: Savings = ALL,
) -> DrawnTokens:
    """K completions of each left-padded prompt (ids, mask), K = rows of uniforms_NT / P; rows of a group adjacent.

    What is given and what is found stands on the CPU, whatever the model runs on.
    """
    limit = how.max_completion_length
    logits_RV, token_step = _prefill(model, prompts_PS, uniforms_NT.shape, savings)
    device = logits_RV.device
    uniforms_RT, end_ids = to_device(uniforms_NT, device), to_device(ends.ids, device)
    numbers_R = torch.arange(len(uniforms_RT))
    over_R = torch.zeros(len(uniforms_RT), dtype=torch.bool, device=device)
    look_every = LOOK_EVERY.get(device.type, 1)
    steps, progress, n = list[DrawnStep](), _progress.get(), len(uniforms_NT)
    watch = StopWatch(ends, n)
    seen_RV = _seen_words(prompts_PS, logits_RV) if how.repetition_penalty != 1 else None
    for t in range(limit):
        tokens_R, logprobs_R = draw_tokens(
            logits_RV, uniforms_RT[:, t], how, seen_RV=seen_RV, inverse_cdf=savings.inverse_cdf
        )
        steps.append(DrawnStep(numbers_R=numbers_R, tokens_R=tokens_R, logprobs_R=logprobs_R))
        seen_RV = None if seen_RV is None else seen_RV.scatter_(-1, tokens_R.unsqueeze(-1), True)
        over_R = over_R | (tokens_R.unsqueeze(-1) == end_ids).any(-1)
        if t + 1 == limit:
            break
        if (t + 1) % look_every == 0:
            over = watch.also_stopped(over_R.tolist(), steps)
            if progress is not None:
                progress.drawn(n - len(over) + sum(over), t + 1)
            if all(over):
                break
            if savings.finished_leave and any(over):
                kept = torch.tensor(rows_after_leaving(over))
                token_step.keep(kept)
                numbers_R, kept_R = numbers_R[kept], to_device(kept, device)
                uniforms_RT, tokens_R, over_R = uniforms_RT[kept_R], tokens_R[kept_R], over_R[kept_R]
                seen_RV = None if seen_RV is None else seen_RV[kept_R]
        logits_RV = token_step.step(tokens_R, t)
    if progress is not None:
        progress.finished(n)
    watch.also_stopped([], steps)
    return _side_by_side(steps, n=n, end_ids=ends.ids, stopped=watch.stopped)


def _seen_words(prompts_PS: tuple[Tensor, Tensor], logits_NV: Tensor) -> Tensor:
    """(N, V) bool: the words of each row's prompt, its padding left out."""
    ids_PS, mask_PS = prompts_PS
    seen_PV = torch.zeros(len(ids_PS), logits_NV.shape[-1], dtype=torch.bool)
    prompt_M, place_M = mask_PS.nonzero(as_tuple=True)
    seen_PV[prompt_M, ids_PS[prompt_M, place_M]] = True
    return to_device(seen_PV, logits_NV.device).repeat_interleave(len(logits_NV) // len(ids_PS), 0)


def _prefill(
    model: Any, prompts_PS: tuple[Tensor, Tensor], shape_NT: Sequence[int], savings: Savings
) -> tuple[Tensor, TokenStep]:
    """The logits of every row's first token, (N, V), and what runs the others, all rows drawing.

    One forward per prompt, whatever its rows need of it repeated or shared; without that saving one per row.
    """
    n, limit = shape_NT
    k = n // len(prompts_PS[0])
    ids, mask = prompts_PS if savings.shared_prefill else (table.repeat_interleave(k, 0) for table in prompts_PS)
    k, cache, device = n // len(ids), DynamicCache(), model.device
    # As an index and not as the number 1: transformers would cut a view, which makes torch copy the head for each row.
    last = to_device(torch.tensor([ids.shape[1] - 1]), device)
    logits = model(
        input_ids=to_device(ids, device),
        attention_mask=to_device(mask, device),
        position_ids=to_device(position_ids(mask), device),
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=last,
    ).logits[:, -1]
    # The last token of a row is not run.
    record = RECORDERS.get(device.type) if savings.recorded_steps else None
    quick = decoder_step(model, cache, mask, k, limit - 1, record) if savings.lean_steps else None
    return logits.repeat_interleave(k, 0), quick or ModelStep(model, cache, mask, k, limit - 1)


def sampler_logprobs(model: Any, rollout: Rollout, temperature: float) -> Tensor:
    """What the sampler says of one row's tokens, (T,) on the CPU: as drawn, but given.

    The prompt is run into a cache and the tokens behind it, so a cache that is old or lost is seen; all tokens are run
    at once, since none must be waited for.
    """
    ids_1S, ids_1T = (to_device(rollout.actions[name], model.device) for name in ("prompt_ids", "ids"))
    cache, last = DynamicCache(), to_device(torch.tensor([ids_1S.shape[1] - 1]), model.device)
    logits = [model(input_ids=ids_1S, past_key_values=cache, use_cache=True, logits_to_keep=last).logits]
    if ids_1T.shape[1] > 1:
        logits.append(model(input_ids=ids_1T[:, :-1], past_key_values=cache, use_cache=True).logits)
    logits_TV = torch.cat(logits, dim=1)[0].float() / temperature
    logprobs_T: Tensor = logits_TV.log_softmax(-1).gather(-1, ids_1T[0].unsqueeze(-1)).squeeze(-1)
    return logprobs_T.cpu()


def _side_by_side(steps: Sequence[DrawnStep], *, n: int, end_ids: Tensor, stopped: Mapping[int, int]) -> DrawnTokens:
    """The steps side by side, each row up to its first end or where it `stopped`, by one assignment for all."""
    width = len(steps)
    row_at = torch.cat([step.numbers_R for step in steps])
    step_at = torch.arange(width).repeat_interleave(torch.tensor([len(step.numbers_R) for step in steps]))
    ids_NT = end_ids[0].repeat(n, width)
    logprobs_NT = torch.zeros(n, width)
    ids_NT[row_at, step_at] = torch.cat([step.tokens_R for step in steps]).cpu()
    logprobs_NT[row_at, step_at] = torch.cat([step.logprobs_R for step in steps]).cpu()
    ends_NT = (ids_NT.unsqueeze(-1) == end_ids).any(-1)
    for number, place in stopped.items():
        ends_NT[number, place] = True
    mask_NT = ends_NT.cumsum(-1) - ends_NT.long() == 0  # nothing that came before is an end
    longest = int(mask_NT.sum(-1).max())
    return DrawnTokens(
        ids_NT=ids_NT.masked_fill(~mask_NT, int(end_ids[0]))[:, :longest],
        mask_NT=mask_NT[:, :longest],
        logprobs_NT=logprobs_NT.masked_fill(~mask_NT, 0.0)[:, :longest],
        truncated_N=~ends_NT.any(-1),
    )
