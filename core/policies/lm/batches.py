"""How many rows are sampled or learned from at once (saving `by_length`), so that memory stays bounded.

What grows with sampled rows is the KV cache, prompt and completion long, and what one token's distribution takes; with
learned ones what backward needs of each token. Both are known from the model's shapes. The bound is of the device, not
of what is free on it: a repeated run must batch its rows as the first one did, for batched kernels round differently.
Not here: what to do where memory runs out all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

ON_CPU = 2**30  # bytes
OF_A_DEVICE = 1 / 4  # of its memory
UNKNOWN_TOKENS = 4096  # of a model whose blocks cannot be told from its configuration
UNKNOWN_SHAPE = 64  # rows, of a model whose cache cannot be told from its configuration
PER_WORD = 24  # bytes for each row and word of the vocabulary: logits, exponentials, and what top_p sorts them with


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


def tokens_at_once(config: Any, itemsize: int, budget: float) -> int:
    """The tokens, at least 1, whose intermediate results fit in `budget` bytes while a gradient is on its way.

    Of a Llama-like block some ten vectors of its width and four of its MLP's: what SmolLM2's keep where every layer
    carries an adapter or moves itself; with adapters on attention alone it is three quarters of that.
    """
    config = config.get_text_config() if hasattr(config, "get_text_config") else config
    layers, hidden = (getattr(config, name, None) for name in ("num_hidden_layers", "hidden_size"))
    if not (layers and hidden):
        return UNKNOWN_TOKENS
    inner = getattr(config, "intermediate_size", None) or 4 * hidden
    return max(1, int(budget // (layers * (10 * hidden + 4 * inner) * itemsize)))


@dataclass(frozen=True, kw_only=True, slots=True)
class PromptRows:
    """Neighbouring rows of one prompt: their numbers and completion lengths, and the prompt's own length in tokens."""

    rows: Sequence[int]
    lengths: Sequence[int]
    prompt: int

    def split(self, limit: int, budget: int) -> list[PromptRows]:
        """Itself, longest rows first, in pieces of at most `limit` rows and `budget` tokens; a row at least in each."""
        order = sorted(range(len(self.rows)), key=lambda place: -self.lengths[place])
        pieces: list[PromptRows] = []
        while order:
            longest = max(1, self.lengths[order[0]])
            size = max(1, min(limit, (budget - self.prompt) // longest))
            piece, order = order[:size], order[size:]
            rows, lengths = [self.rows[place] for place in piece], [self.lengths[place] for place in piece]
            pieces.append(PromptRows(rows=rows, lengths=lengths, prompt=self.prompt))
        return pieces


def micro_batches(prompts: Sequence[PromptRows], *, limit: int, budget: int) -> list[list[int]]:
    """All rows in micro-batches of at most `limit` rows and `budget` tokens, padding counted, but one row at least.

    Prompts of like length are put together, the longest first, so that what does not fit is found out at once. A
    prompt's rows are split only where they do not fit by themselves: each piece runs its prompt anew.
    """
    batches: list[list[int]] = []
    current: list[PromptRows] = []
    longest_first = sorted(prompts, key=lambda rows: -max(rows.lengths))
    for piece in (piece for rows in longest_first for piece in rows.split(limit, budget)):
        if current and not _fits([*current, piece], limit, budget):
            batches.append([row for rows in current for row in rows.rows])
            current = []
        current.append(piece)
    return [*batches, [row for rows in current for row in rows.rows]] if current else batches


def _fits(prompts: Sequence[PromptRows], limit: int, budget: int) -> bool:
    """True when these may be one micro-batch: prompts are padded to their longest, and completions likewise."""
    count = sum(len(own.rows) for own in prompts)
    tokens = len(prompts) * max(own.prompt for own in prompts) + count * max(max(own.lengths) for own in prompts)
    return count <= limit and tokens <= budget


def sampling_budget(device: torch.device) -> float:
    """Bytes that sampling, or what backward needs, may take on this device besides the weights."""
    if device.type != "cuda":
        return ON_CPU
    return torch.cuda.get_device_properties(device).total_memory * OF_A_DEVICE
