"""A token through the model's own forward: any causal LM that transformers knows, with a KV cache of its own.

Each row has its prompt's keys and values for itself (core.policies.lm.fast.window_cache).
Not here: the models that need no more than a few operations of ours (core.policies.lm.fast.decoder_step).

Shape suffixes: R rows drawing, L prompt and drawn tokens, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from core.models.devices import to_device
from core.policies.lm.fast.plain import takes_ready_mask
from core.policies.lm.fast.window_cache import keep, widen


class OwnForward:
    """The model, and what its rows need for their next token."""

    def __init__(self, model: Any, cache: DynamicCache, mask_PS: Tensor, k: int, limit: int) -> None:
        """`cache` and mask (on the CPU) of the prompts, each for k rows of up to `limit` tokens that are run."""
        # A model that drops its cache also sees no more than one token: a mask for all of them would not fit.
        self._ready = takes_ready_mask(model.config) and cache.get_seq_length() == mask_PS.shape[1]
        self._model, self._cache, self._prompt = model, cache, mask_PS.shape[1]
        widen(cache, k, limit)
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
        keep(self._cache, kept, kept_R.device)
        self._next_R1 = self._next_R1[kept_R]
        self._seen_RL = None if self._seen_RL is None else self._seen_RL[kept_R]

    def _mask(self, width: int) -> Tensor | None:
        """What the next token sees of `width` tokens: (R, width), or the (R, 1, 1, width) that attention takes."""
        if self._seen_RL is None:
            return None
        seen = self._seen_RL[:, :width]
        return seen[:, None, None] if self._ready else seen
