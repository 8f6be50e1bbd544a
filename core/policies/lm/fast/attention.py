"""Attention of scoring and learning: short rows by plain products, and prompts that stand once for their completions.

torch's own kernel is made for long rows: on the CPU its backward takes three times as long on a hundred tokens, and it
wants keys and values repeated for every query head. Where the scores of all rows would be large it is used all the
same, as it is for a single query, on other devices and under attention dropout.

A layer's linear parts do not mind where a token stands; only attention does: a prompt's tokens see those before them, a
completion's its prompt and those before them. So prompts and what follows each may stand in one row, every product of a
layer is one for all tokens, and the keys of a prompt are not repeated for its completions.
Not here: who asks for it and builds such a row (core.policies.lm.forward), a drawn token's attention (kv_cache.py).

Shape suffixes: P prompts, S tokens of each, R completions, K = R / P where each prompt has as many, W tokens of each,
M = P * S + R * W, G key/value heads, Q query heads of each, H query heads, D size of a head.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from core.models.devices import to_device

GROUPED_HEADS, SHARED_PREFIX = "grouped_heads", "shared_prefix"  # as transformers knows the two
MAX_SCORE_BYTES = 2**26  # of all rows' scores in float32: above, torch's own kernel is used
CPU = torch.device("cpu")


@contextmanager
def grouped_heads(model: Any) -> Iterator[None]:
    """Saving `grouped_heads`: short rows on the CPU by plain products in the place of `sdpa`. Equal up to rounding.

    With any other attention, and on any other device, the model is left as it is.
    """
    config = model.config
    if config._attn_implementation != "sdpa" or model.device.type != "cpu":
        yield
        return
    config._attn_implementation = GROUPED_HEADS
    try:
        yield
    finally:
        config._attn_implementation = "sdpa"


def centre_keys(module: Any, key: Tensor) -> Tensor:
    """(rows, heads, L, D) keys about their mean where products are of 16 bits and the layer adds a bias to its keys.

    What all keys have in common adds the same to every score of a query, and a softmax does not see it. But in bfloat16
    a score of 80 is rounded to a half, and Qwen2's biases make such.
    """
    exact = key.dtype.itemsize > 2 and not torch.is_autocast_enabled(key.device.type)
    if exact or getattr(getattr(module, "k_proj", None), "bias", None) is None:
        return key
    return key - key.mean(2, keepdim=True).detach()


def mask_to_bias(seen: Tensor, dtype: torch.dtype) -> Tensor:
    """What is added to scores: 0 where a key is seen, the least number where it is not; the mask's own shape."""
    # Not minus infinity: what stands in for padding may see nothing, and must not become NaN.
    return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill(~seen, torch.finfo(dtype).min)


def attend_grouped(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **how: Any
) -> tuple[Tensor, None]:
    """(rows, heads, T, D) queries, (rows, key/value heads, L, D) keys and values -> (rows, T, heads, D), and None.

    `attention_mask` is boolean, True where a key is seen, (rows, 1, T, L); None: each query sees what is before it.
    """
    rows, heads, width, _ = query.shape
    groups, seen = key.shape[1], key.shape[2]
    large = 4 * rows * heads * width * seen > MAX_SCORE_BYTES
    if large or width == 1 or how.get("dropout") or query.device.type != "cpu":
        attended: tuple[Tensor, None] = sdpa_attention_forward(module, query, key, value, attention_mask, **how)
        return attended
    if attention_mask is None:
        attention_mask = torch.ones(width, seen, dtype=torch.bool).tril()[None, None]
    bias = mask_to_bias(attention_mask, query.dtype)
    scale = how.get("scaling") or query.shape[-1] ** -0.5
    stacked = (query * scale).reshape(rows, groups, heads // groups * width, -1)
    scores = (stacked @ centre_keys(module, key).transpose(-1, -2)).view(
        rows, groups, heads // groups, width, seen
    ) + bias.unsqueeze(2)
    precise = torch.promote_types(scores.dtype, torch.float32)
    weights = scores.softmax(-1, dtype=precise).to(value.dtype).view(rows, groups, -1, seen)
    return (weights @ value).view(rows, heads, width, -1).transpose(1, 2).contiguous(), None


def causal_mask(tokens: int, device: torch.device) -> Tensor:
    """(tokens, tokens), True where a token sees another: itself and those before it."""
    return torch.ones(tokens, tokens, dtype=torch.bool, device=device).tril()


class SharedPrefix:
    """What stands in the row: P left-padded prompts, then R completions of `width` tokens, those of a prompt adjacent.

    `grouped`: by plain products where that is quicker; else by torch's own kernels.
    """

    def __init__(
        self,
        mask_PS: Tensor,
        counts: Sequence[int],
        width: int,
        *,
        device: torch.device = CPU,
        grouped: bool = True,
        masked: bool = False,
    ) -> None:
        """`counts`: the completions of each prompt. The mask stands on the CPU, keys and values on `device`.

        `masked`: prompts have a mask of their own also where none has padding.
        """
        (self.prompts, self.size), self.rows = mask_PS.shape, sum(counts)
        self.width, self.grouped = width, grouped
        self.equal_counts = min(counts) == max(counts)
        self.counts = counts
        seen_P1S = to_device(mask_PS.bool(), device).unsqueeze(1)
        in_prompt, in_completion = causal_mask(self.size, device), causal_mask(width, device)
        # None: no prompt has padding, each token sees what is before it, and flash attention will do.
        self.by_prompts: Tensor | None = None
        if masked or not bool(mask_PS.all()):
            # Padding sees itself: what sees nothing is NaN.
            itself = torch.eye(self.size, dtype=torch.bool, device=device)
            self.by_prompts = ((in_prompt & seen_P1S) | itself).unsqueeze(1)  # (P, 1, S, S)
        wide = seen_P1S.expand(-1, width, -1), in_completion.expand(self.prompts, -1, -1)
        self.by_completions = torch.cat(wide, dim=-1).unsqueeze(1)  # (P, 1, W, S + W)
        self._bias: Tensor | None = None

    def split(self, heads_MD: Tensor) -> tuple[Tensor, Tensor]:
        """(1, heads, M, D) -> (P, heads, S, D) and (R, heads, W, D)."""
        (_, heads, _, size), border = heads_MD.shape, self.prompts * self.size
        return (
            heads_MD[0, :, :border].view(heads, self.prompts, self.size, size).transpose(0, 1),
            heads_MD[0, :, border:].view(heads, self.rows, self.width, size).transpose(0, 1),
        )

    def repeat_prompts(self, of_prompts: Tensor) -> Tensor:
        """What each prompt has, for every completion: (P, ..) -> (R, ..)."""
        if self.equal_counts:
            return of_prompts.repeat_interleave(self.rows // self.prompts, 0)
        # One by one, whose backward is a sum for each: an index's adds row by row, and rounds at each.
        counted = zip(torch.split(of_prompts, 1), self.counts, strict=True)
        return torch.cat([prompt.expand(count, *prompt.shape[1:]) for prompt, count in counted])

    def bias(self, dtype: torch.dtype) -> Tensor:
        """What is added to the scores of the completions, (P, 1, W, S + W); of every row where counts differ."""
        if self._bias is None or self._bias.dtype != dtype:
            seen = self.by_completions if self.equal_counts else self.repeat_prompts(self.by_completions)
            self._bias = mask_to_bias(seen, dtype)
        return self._bias


@contextmanager
def shared_prefix_attention(model: Any) -> Iterator[None]:
    """Saving `shared_prompts`: a prompt stands once in one row with its completions. Equal up to rounding.

    The decoder is then called with `prefix=` and no mask.
    """
    config = model.config
    before, config._attn_implementation = config._attn_implementation, SHARED_PREFIX
    try:
        yield
    finally:
        config._attn_implementation = before


def attend_shared_prefix(
    module: Any, query: Tensor, key: Tensor, value: Tensor, _mask: None, **how: Any
) -> tuple[Tensor, None]:
    """(1, heads, M, D) queries, (1, key/value heads, M, D) keys and values -> (1, M, heads, D), and None.

    `prefix=`, among what a model hands to its attention, says what stands where.
    """
    prefix: SharedPrefix = how.pop("prefix")
    (q_P, q_R), (k_P, k_R), (v_P, v_R) = (prefix.split(heads) for heads in (query, key, value))
    attend = attend_grouped if prefix.grouped else sdpa_attention_forward
    parts = [attend(module, q_P, k_P, v_P, prefix.by_prompts, **how)[0].flatten(0, 1)]
    if prefix.width:
        large = 4 * q_R.shape[:3].numel() * (prefix.size + prefix.width) > MAX_SCORE_BYTES
        if large or not prefix.grouped or how.get("dropout") or query.device.type != "cpu":
            keys, values = (torch.cat([prefix.repeat_prompts(a), b], dim=2) for a, b in ((k_P, k_R), (v_P, v_R)))
            seen = prefix.repeat_prompts(prefix.by_completions)
            attended = sdpa_attention_forward(module, q_R, keys, values, seen, **how)[0]
        else:
            scaling = how.get("scaling") or query.shape[-1] ** -0.5
            k_P, k_R = prefix.split(centre_keys(module, key))
            attended = _attend_completions(q_R * scaling, (k_R, v_R), (k_P, v_P), prefix)
        parts.append(attended.flatten(0, 1))
    return torch.cat(parts).unsqueeze(0), None


def _attend_completions(
    query: Tensor, completion: tuple[Tensor, Tensor], prompt: tuple[Tensor, Tensor], prefix: SharedPrefix
) -> Tensor:
    """The completions' part as plain products, (R, W, heads, D): one with its keys for all that follows a prompt.

    Where prompts have unequal numbers of completions, each of these has the prompt for itself.
    """
    (rows, heads, width, size), groups = query.shape, completion[0].shape[1]
    prompt_keys, prompt_values = prompt if prefix.equal_counts else map(prefix.repeat_prompts, prompt)
    p, _, s, _ = prompt_keys.shape
    k, q = rows // p, heads // groups

    def by_prompt(heads_RHWD: Tensor) -> Tensor:
        """(R, heads, W, D) -> (P, G, K, heads / G * W, D)."""
        return heads_RHWD.reshape(p, k, groups, -1, size).transpose(1, 2)

    queries = by_prompt(query).reshape(p * groups, k * q * width, size)
    keys, values = (by_prompt(states).reshape(p * groups * k, width, size) for states in completion)
    scores = torch.cat(
        [
            (queries @ prompt_keys.reshape(p * groups, s, size).transpose(1, 2)).view(p, -1, width, s),
            (queries.view(-1, q * width, size) @ keys.transpose(1, 2)).view(p, -1, width, width),
        ],
        dim=-1,
    )
    weights = scores.add_(prefix.bias(scores.dtype)).softmax(-1)  # within it everything is float32
    over_prompt = weights[..., :s].reshape(p * groups, k * q * width, s)
    of_prompt = over_prompt @ prompt_values.reshape(p * groups, s, size)
    over_completion = weights[..., s:].reshape(-1, q * width, width)
    attended = torch.baddbmm(of_prompt.view(-1, q * width, size), over_completion, values)
    return attended.view(p, groups, k, q, width, size).permute(0, 2, 4, 1, 3, 5).reshape(rows, width, heads, size)


AttentionInterface.register(GROUPED_HEADS, attend_grouped)
AttentionMaskInterface.register(GROUPED_HEADS, sdpa_mask)
# With no function that makes masks for it transformers makes none: what is seen goes to attention with the prefix.
AttentionInterface.register(SHARED_PREFIX, attend_shared_prefix)
