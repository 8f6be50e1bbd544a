"""How many rows are sampled at once, so that memory stays bounded whatever an evaluation asks for.

What grows with the rows is the KV cache, prompt and completion long, and what one token's distribution takes. Both are
known from the model's shapes. The bound is of the device, not of what is free on it: a repeated run must batch its rows
as the first one did, for batched kernels round differently.
Not here: what to do where memory runs out all the same.
"""

from __future__ import annotations

from typing import Any

import torch

ON_CPU = 2**30  # bytes
OF_A_DEVICE = 1 / 4  # of its memory
UNKNOWN_SHAPE = 64  # rows, of a model whose cache cannot be told from its configuration
PER_WORD = 24  # bytes for each row and word of the vocabulary: logits, log-probs, probabilities, their float64 sums


def rows_at_once(config: Any, itemsize: int, tokens: int, budget: float) -> int:
    """The rows, at least 1, whose cache of `tokens` tokens and next-token distribution fit in `budget` bytes.

    `config` is a transformers configuration, `itemsize` the bytes of one number in the cache.
    """
    config = config.get_text_config() if hasattr(config, "get_text_config") else config
    layers, heads, hidden = (
        getattr(config, name, None) for name in ("num_hidden_layers", "num_attention_heads", "hidden_size")
    )
    if not (layers and heads and hidden):
        return UNKNOWN_SHAPE
    width = (getattr(config, "num_key_value_heads", None) or heads) * (
        getattr(config, "head_dim", None) or hidden // heads
    )
    row = 2 * layers * width * itemsize * tokens + PER_WORD * config.vocab_size
    return max(1, int(budget // row))


def sampling_budget(device: torch.device) -> float:
    """Bytes that sampling may take on this device besides the weights."""
    if device.type != "cuda":
        return ON_CPU
    return torch.cuda.get_device_properties(device).total_memory * OF_A_DEVICE
