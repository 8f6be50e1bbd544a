"""The KV caches of rows that draw. Both have room for what will be drawn, and write a token where it belongs.

WindowLayer is for a model's own forward: each row has its prompt's keys, and what is seen is a window that grows. The
same numbers as transformers' DynamicCache, which copies all of it for every token, and once more whenever a row
leaves. Here a token costs its own keys and values, and a row that leaves the copy of one other row into its place.
Layers that keep something other than the keys and values of every token stay as transformers has them.

SharedCache is for decoder_step.py: what a prompt left stands there once, what rows drew in places of their own.
Attention of a token is a product with its prompt's keys, all rows of the prompt in one, and one with the keys its own
row drew; one softmax goes over both (bifurcated attention, arXiv 2403.08845). A cache that repeats the prompts for
their rows is K times as large, and for every token all of it is read.
Its places are a table, prompts x places: a row that leaves frees its place, and when a quarter of the places is free,
the table is made smaller. What nobody wrote is 0 and never whatever the memory had: of an odd number of bfloat16
values the CPU's products multiply one with a zero and the next row's first, and 0 * NaN is NaN.

Shape suffixes: P prompts, W places of each, R rows drawing, G key/value heads, Q query heads of each, D size of a head,
S prompt tokens, C drawn tokens there is room for, E anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from core.models.devices import to_device
from core.policies.lm.fast.attention import mask_to_bias

FIRST_ROOM = {"cpu": 64, "cuda": 256}  # drawn tokens there is room for at first; where a step is recorded, more
COMPACT_BELOW = 3 / 4  # of the places in use: a smaller table is then worth the copying


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerCache:
    """One layer's keys and values: (P, G, S, D) of the prompts, (P * W, G, C, D) of what was drawn.

    Keys are less `key_mean`, (G, 1, D), where it is not None: see core.policies.lm.fast.attention.centre_keys.
    """

    key_mean: Tensor | None
    keys: Tensor
    values: Tensor
    drawn_keys: Tensor
    drawn_values: Tensor

    def centred(self, keys_RGD: Tensor) -> Tensor:
        """Keys as they are kept here."""
        return keys_RGD if self.key_mean is None else keys_RGD - self.key_mean.squeeze(1)

    def store_at(self, keys_NGD: Tensor, values_NGD: Tensor, t_1: Tensor) -> None:
        """The token of every place; its number is a tensor where keys and values are, and nobody waits for it."""
        for table, new in ((self.drawn_keys, self.centred(keys_NGD)), (self.drawn_values, values_NGD)):
            table.index_copy_(2, t_1, new.unsqueeze(2))


class SharedCache:
    """The keys and values of every layer, and which row has which place."""

    def __init__(
        self,
        prompts: Sequence[tuple[Tensor, Tensor]],
        mask_PS: Tensor,
        k: int,
        limit: int,
        *,
        centre_keys: bool = False,
    ) -> None:
        """`prompts`: keys and values of each layer, their mask on the CPU; `limit`: the most tokens a row puts in.

        `centre_keys`: keys are kept about the mean of the prompts'.
        """
        first = prompts[0][0]
        self.places = k
        self.limit = limit
        self.version = 0  # another number when the tables are others
        self._mask_PS = mask_PS
        self._bias = _padding_bias(mask_PS, first)  # (P * G, 1, S); None where no prompt has padding
        self.starts_N = _prompt_lengths(mask_PS, k, first)  # the position of the first token that each place draws
        self._slots: Tensor | None = None  # on the CPU; None: row r has place r
        self._slots_R: Tensor | None = None  # the same where keys and values are
        rows, room = len(first) * k, max(1, min(limit, FIRST_ROOM.get(first.device.type, FIRST_ROOM["cpu"])))
        means = [keys.mean((0, 2)).unsqueeze(1) if centre_keys else None for keys, _ in prompts]
        self.layers = [
            LayerCache(
                key_mean=mean,
                keys=(keys if mean is None else keys - mean).contiguous(),
                values=values.contiguous(),
                drawn_keys=keys.new_zeros(rows, keys.shape[1], room, keys.shape[3]),
                drawn_values=values.new_zeros(rows, values.shape[1], room, values.shape[3]),
            )
            for (keys, values), mean in zip(prompts, means, strict=True)
        ]

    @property
    def prompts(self) -> int:
        """P: those that still have a row."""
        return len(self.layers[0].keys)

    @property
    def room(self) -> int:
        """C."""
        return self.layers[0].drawn_keys.shape[2]

    @property
    def longest(self) -> int:
        """Tokens of the longest row there can be, its prompt's among them."""
        return int(self._mask_PS.long().sum(-1).max()) + self.limit

    def positions(self, t: int) -> Tensor:
        """(R,) position of every row's token number `t`: padding does not count."""
        return self.from_places(self.starts_N + t)

    def store(self, layer: LayerCache, keys_RGD: Tensor, values_RGD: Tensor, t: int) -> None:
        """The rows' token number `t` in one layer, each at its place."""
        for table, new in ((layer.drawn_keys, layer.centred(keys_RGD)), (layer.drawn_values, values_RGD)):
            if self._slots_R is None:
                table[:, :, t] = new
            else:
                table[:, :, t].index_copy_(0, self._slots_R, new)

    def to_places(self, values_RE: Tensor) -> Tensor:
        """(R, ..) -> (P * W, ..), every row at its place; free places have zeros."""
        if self._slots_R is None:
            return values_RE
        empty = values_RE.new_zeros(self.prompts * self.places, *values_RE.shape[1:])
        return empty.index_copy_(0, self._slots_R, values_RE)

    def from_places(self, values_NE: Tensor) -> Tensor:
        """(P * W, ..) -> (R, ..): what stands at the rows' places."""
        return values_NE if self._slots_R is None else values_NE.index_select(0, self._slots_R)

    def attend(
        self, layer: LayerCache, q_NHD: Tensor, scaling: float, *, t: int | None = None, bias_C: Tensor | None = None
    ) -> Tensor:
        """Queries of every place's token, whose own key stands there -> (P * W, heads * D).

        The token is number `t`; or `bias_C` is added to the scores of all there is room for, so much less than 0 where
        nothing stands yet that it has no weight.
        """
        p, w, length = self.prompts, self.places, self.room if t is None else t + 1
        g, s, d = layer.keys.shape[1:]
        n, q = p * w, q_NHD.shape[1] // g
        row_NQD = q_NHD.reshape(n * g, q, d)
        shared_PD = row_NQD.view(p, w, g, q * d).transpose(1, 2).reshape(p * g, w * q, d)
        keys_PDS = layer.keys.view(p * g, s, d).transpose(1, 2)
        bias = keys_PDS.new_empty(1) if self._bias is None else self._bias
        of_prompt = torch.baddbmm(bias, shared_PD, keys_PDS, beta=int(self._bias is not None), alpha=scaling)
        # With all there is room for: cutting the keys first would copy them.
        keys_NDC = layer.drawn_keys.view(n * g, -1, d).transpose(1, 2)
        unseen = keys_NDC.new_empty(1) if bias_C is None else bias_C
        of_drawn = torch.baddbmm(unseen, row_NQD, keys_NDC, beta=int(bias_C is not None), alpha=scaling)
        scores = torch.cat(
            [
                of_prompt.view(p, g, w, q, s).transpose(1, 2),
                of_drawn[:, :, :length].view(p, w, g, q, length),
            ],
            dim=-1,
        )
        weights = scores.softmax(-1)  # within it everything is float32
        over_prompt = weights[..., :s].transpose(1, 2).reshape(p * g, w * q, s)
        from_prompt = torch.bmm(over_prompt, layer.values.view(p * g, s, d))
        return torch.baddbmm(
            from_prompt.view(p, g, w, q * d).transpose(1, 2).reshape(n * g, q, d),
            weights[..., s:].reshape(n * g, q, length),
            layer.drawn_values.view(n * g, -1, d)[:, :length],
        ).view(n, g * q * d)

    def make_room(self, t: int) -> None:
        """Room for token number `t`: twice as much as there was, where it is full."""
        if t < self.room:
            return
        room = min(2 * self.room, self.limit)
        self._change_layers(
            lambda layer: replace(
                layer,
                drawn_keys=_with_room(layer.drawn_keys, room),
                drawn_values=_with_room(layer.drawn_values, room),
            )
        )

    def keep(self, kept: Tensor) -> None:
        """These rows, by numbers on the CPU, and no others, in this order; free places go when they are a quarter."""
        self._set_slots(kept if self._slots is None else self._slots[kept])
        at = [] if self._slots is None else self._slots.tolist()
        rows_of: dict[int, list[int]] = {}
        for slot in sorted(at):
            rows_of.setdefault(slot // self.places, []).append(slot)
        widest = max(len(slots) for slots in rows_of.values())
        if len(rows_of) * widest > COMPACT_BELOW * self.prompts * self.places:
            return
        # A place that stays free has any row's tokens, or none: nobody looks at what its attention gives.
        sources = [slot for slots in rows_of.values() for slot in [*slots, *slots[:1] * (widest - len(slots))]]
        self._compact(torch.tensor(list(rows_of)), torch.tensor(sources), widest)
        where = {
            slot: number * widest + place
            for number, slots in enumerate(rows_of.values())
            for place, slot in enumerate(slots)
        }
        new = [where[slot] for slot in at]
        self._set_slots(None if new == list(range(self.prompts * widest)) else torch.tensor(new))

    def _set_slots(self, slots: Tensor | None) -> None:
        """Every row's place from now on."""
        self._slots = slots
        self._slots_R = None if slots is None else to_device(slots, self.starts_N.device)

    def _compact(self, prompts: Tensor, slots: Tensor, places: int) -> None:
        """These prompts and places only, in this order, `places` of each prompt."""
        device = self.starts_N.device
        there, slots_there = to_device(prompts, device), to_device(slots, device)
        if len(prompts) < self.prompts:
            self._mask_PS = self._mask_PS[prompts]
            self._change_layers(lambda layer: replace(layer, keys=layer.keys[there], values=layer.values[there]))
            self._bias = _padding_bias(self._mask_PS, self.layers[0].keys)
        self._change_layers(
            lambda layer: replace(
                layer, drawn_keys=layer.drawn_keys[slots_there], drawn_values=layer.drawn_values[slots_there]
            )
        )
        self.places = places
        self.starts_N = _prompt_lengths(self._mask_PS, places, self.layers[0].keys)

    def _change_layers(self, change: Callable[[LayerCache], LayerCache]) -> None:
        """Each layer's tables by others, one after another: two tables of all layers at once may not fit."""
        self.version += 1
        for number, layer in enumerate(self.layers):
            self.layers[number] = change(layer)


def _prompt_lengths(mask_PS: Tensor, k: int, like: Tensor) -> Tensor:
    """(P * k,): how many tokens each place's prompt has."""
    return to_device(mask_PS.long().sum(-1).repeat_interleave(k), like.device)


def _padding_bias(mask_PS: Tensor, keys: Tensor) -> Tensor | None:
    """What is added to the scores of the prompts' tokens, (P * G, 1, S); None where none is padding."""
    if bool(mask_PS.all()):
        return None
    seen = to_device(mask_PS.bool(), keys.device)
    return mask_to_bias(seen, keys.dtype).repeat_interleave(keys.shape[1], 0).unsqueeze(1)


def _with_room(states: Tensor, room: int) -> Tensor:
    rows, heads, length, size = states.shape
    result = states.new_zeros(rows, heads, room, size)
    result[:, :, :length] = states
    return result


class WindowLayer(DynamicLayer):  # type: ignore[misc]  # transformers has no types
    """The keys and values of one layer: `layer`'s rows each `k` times, with room for `room` more tokens."""

    def __init__(self, layer: Any, k: int, room: int) -> None:
        super().__init__()
        self.lazy_initialization(layer.keys, layer.values)
        self._room = _repeated_with_room(layer.keys, k, room), _repeated_with_room(layer.values, k, room)
        self._show(layer.keys.shape[-2])

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """All keys and values so far, these among them: (rows, heads, tokens, size) each."""
        length = self.keys.shape[-2]
        self._show(length + key_states.shape[-2])
        self.keys[:, :, length:] = key_states
        self.values[:, :, length:] = value_states
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


def _repeated_with_room(states: Tensor, k: int, room: int) -> Tensor:
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
