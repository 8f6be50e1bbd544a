"""Attention for short rows on the CPU: plain products, the query heads of a key/value head side by side in one of them.

torch's own kernel is made for long rows: on the CPU its backward takes three times as long on a hundred tokens, and it
wants keys and values repeated for every query head. Where the scores of all rows would be large it is used all the
same, as it is for a single query, on other devices and under attention dropout.
Not here: who asks for it (core.policies.lm.forward).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

NAME = "grouped_heads"
MOST = 2**26  # bytes of all rows' scores in float32


@contextmanager
def grouped_heads(model: Any) -> Iterator[None]:
    """The model with this attention in the place of transformers' `sdpa`; with any other, as it is."""
    config = model.config
    if config._attn_implementation != "sdpa" or model.device.type != "cpu":
        yield
        return
    config._attn_implementation = NAME
    try:
        yield
    finally:
        config._attn_implementation = "sdpa"


def centred(module: Any, key: Tensor) -> Tensor:
    """(rows, heads, L, D) keys about their mean where products are of 16 bits and the layer adds a bias to its keys.

    What all keys have in common adds the same to every score of a query, and a softmax does not see it. But in bfloat16
    a score of 80 is rounded to a half, and Qwen2's biases make such.
    """
    exact = key.dtype.itemsize > 2 and not torch.is_autocast_enabled(key.device.type)
    if exact or getattr(getattr(module, "k_proj", None), "bias", None) is None:
        return key
    return key - key.mean(2, keepdim=True).detach()


def bias_of(seen: Tensor, dtype: torch.dtype) -> Tensor:
    """What is added to scores: 0 where a key is seen, the least number where it is not; the mask's own shape."""
    # Not minus infinity: what stands in for padding may see nothing, and must not become NaN.
    return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill(~seen, torch.finfo(dtype).min)


def attend(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **how: Any
) -> tuple[Tensor, None]:
    """(rows, heads, T, D) queries, (rows, key/value heads, L, D) keys and values -> (rows, T, heads, D), and None.

    `attention_mask` is boolean, True where a key is seen, (rows, 1, T, L); None: each query sees what is before it.
    """
    rows, heads, width, _ = query.shape
    groups, seen = key.shape[1], key.shape[2]
    large = 4 * rows * heads * width * seen > MOST
    if large or width == 1 or how.get("dropout") or query.device.type != "cpu":
        found: tuple[Tensor, None] = sdpa_attention_forward(module, query, key, value, attention_mask, **how)
        return found
    if attention_mask is None:
        attention_mask = torch.ones(width, seen, dtype=torch.bool).tril()[None, None]
    bias = bias_of(attention_mask, query.dtype)
    scale = how.get("scaling") or query.shape[-1] ** -0.5
    stacked = (query * scale).reshape(rows, groups, heads // groups * width, -1)
    scores = (stacked @ centred(module, key).transpose(-1, -2)).view(
        rows, groups, heads // groups, width, seen
    ) + bias.unsqueeze(2)
    precise = torch.promote_types(scores.dtype, torch.float32)
    weights = scores.softmax(-1, dtype=precise).to(value.dtype).view(rows, groups, -1, seen)
    return (weights @ value).view(rows, heads, width, -1).transpose(1, 2).contiguous(), None


AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, sdpa_mask)
