"""A KV cache with room for what will be drawn: a token is written into it, and what is seen is a window that grows.

The same numbers as transformers' DynamicCache, which copies all of it for every token, and once more whenever a row
leaves. Here a token costs its own keys and values, and a row that leaves the copy of one other row into its place.
Not here: layers that keep something other than the keys and values of every token; those stay as transformers has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from core.models.devices import to_device


class WindowLayer(DynamicLayer):  # type: ignore[misc]  # transformers has no types
    """The keys and values of one layer: `layer`'s rows each `k` times, with room for `room` more tokens."""

    def __init__(self, layer: Any, k: int, room: int) -> None:
        super().__init__()
        self.lazy_initialization(layer.keys, layer.values)
        self._room = _with_room(layer.keys, k, room), _with_room(layer.values, k, room)
        self._show(layer.keys.shape[-2])

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """All keys and values so far, these among them: (rows, heads, tokens, size) each."""
        seen = self.keys.shape[-2]
        self._show(seen + key_states.shape[-2])
        self.keys[:, :, seen:] = key_states
        self.values[:, :, seen:] = value_states
        return self.keys, self.values

    def keep(self, rows: int, into: Tensor, whence: Tensor) -> None:
        """The first `rows` rows, once those at `whence` have been copied over those at `into`."""
        for window in (self.keys, self.values):
            window[into] = window[whence]
        keys, values = self._room
        self._room = keys[:rows], values[:rows]
        self._show(self.keys.shape[-2])

    def _show(self, tokens: int) -> None:
        keys, values = self._room
        self.keys, self.values = keys[:, :, :tokens], values[:, :, :tokens]


def _with_room(states: Tensor, k: int, room: int) -> Tensor:
    """(rows, heads, tokens, size) -> (rows * k, heads, tokens + room, size), the room empty."""
    rows, heads, tokens, size = states.shape
    result = states.new_empty(rows, k, heads, tokens + room, size)
    result[:, :, :, :tokens] = states.unsqueeze(1)
    return result.flatten(0, 1)


def repeat_with_room(cache: DynamicCache, k: int, room: int) -> None:
    """Each row of the cache `k` times, the k adjacent, with room for `room` more tokens where a layer is plain."""
    for number, layer in enumerate(cache.layers):
        if type(layer) is DynamicLayer and layer.is_initialized:
            cache.layers[number] = WindowLayer(layer, k, room)
        else:
            layer.batch_repeat_interleave(k)


def rows_after_leaving(leaving: Sequence[bool]) -> list[int]:
    """The rows that stay, in the order they will have: the last ones in the places of those that leave."""
    staying = len(leaving) - sum(leaving)
    spare = [row for row in range(staying, len(leaving)) if not leaving[row]]
    return [spare.pop() if leaving[row] else row for row in range(staying)]


def keep_rows(cache: DynamicCache, kept: Tensor, device: torch.device) -> None:
    """These rows of the cache and no others, in this order; `rows_after_leaving` gives the one that moves least.

    `kept` stands on the CPU, the cache on `device`.
    """
    into = (kept != torch.arange(len(kept))).nonzero().squeeze(-1)
    there = to_device(into, device), to_device(kept[into], device)
    for layer in cache.layers:
        if isinstance(layer, WindowLayer):
            layer.keep(len(kept), *there)
        else:
            layer.batch_select_indices(to_device(kept, device))
