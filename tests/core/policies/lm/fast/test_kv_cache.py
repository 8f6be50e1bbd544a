"""KV caches: a window shows what a DynamicCache holds, and a shared one what every row has seen, whoever leaves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicSlidingWindowLayer

from core.policies.lm.fast.attention import mask_to_bias
from core.policies.lm.fast.kv_cache import (
    FIRST_ROOM,
    SharedCache,
    WindowLayer,
    keep_rows,
    repeat_with_room,
    rows_after_leaving,
)

LAYERS, WINDOW_PROMPTS, K, HEADS, WINDOW_SIZE = 2, 2, 3, 2, 4


def states(seed: int, rows: int, tokens: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    keys, values = torch.randn(2, rows, HEADS, tokens, WINDOW_SIZE, generator=generator)
    return keys, values


def filled(layers: list[Any] | None = None) -> DynamicCache:
    cache = DynamicCache()
    cache.layers += layers or []
    for layer in range(LAYERS):
        cache.update(*states(layer, WINDOW_PROMPTS, 5), layer)
    return cache


@pytest.mark.parametrize(
    ("leaving", "order"),
    [
        ([False, False, False], [0, 1, 2]),
        ([True, False, False], [2, 1]),  # the last takes the place of the first
        ([False, False, True], [0, 1]),  # the last leaves: nobody moves
        ([True, True, False, False, False], [4, 3, 2]),
        ([True, False, True, False, True], [3, 1]),
        ([True, True], []),
    ],
)
def test_the_last_rows_take_the_places_of_those_that_leave(leaving: list[bool], order: list[int]) -> None:
    assert rows_after_leaving(leaving) == order


def test_it_shows_what_a_growing_cache_holds() -> None:
    ours, theirs = filled(), filled()
    repeat_with_room(ours, K, room=4)
    theirs.batch_repeat_interleave(K)
    rows = list(range(WINDOW_PROMPTS * K))
    for t, leaving in enumerate(([], [0, 4], [], [1, 2])):  # who leaves before the token, by place
        kept = torch.tensor(rows_after_leaving([place in leaving for place in range(len(rows))]))
        rows = [rows[place] for place in kept.tolist()]
        keep_rows(ours, kept, kept.device)
        theirs.batch_select_indices(kept)
        for layer in range(LAYERS):
            new = states(10 * t + layer, len(rows), 1)
            for mine, their in zip(ours.update(*new, layer), theirs.update(*new, layer), strict=True):
                assert mine.equal(their)
            assert ours.layers[layer].keys.equal(theirs.layers[layer].keys)
        assert ours.get_seq_length() == theirs.get_seq_length() == 6 + t
    assert rows == [5, 3]  # 0..5; 0 and 4 leave: 5 1 2 3; places 1 and 2 leave: 5 3


def test_a_token_is_written_where_there_is_room() -> None:
    cache = filled()
    repeat_with_room(cache, K, room=2)
    place = cache.layers[0].keys.data_ptr()
    cache.update(*states(1, WINDOW_PROMPTS * K, 1), 0)
    assert cache.layers[0].keys.data_ptr() == place
    with pytest.raises(RuntimeError):  # and nowhere else
        cache.update(*states(1, WINDOW_PROMPTS * K, 2), 0)


def test_a_layer_of_another_kind_stays_as_it_is() -> None:
    cache = filled([DynamicSlidingWindowLayer(sliding_window=3)])
    repeat_with_room(cache, K, room=2)
    assert [type(layer) for layer in cache.layers] == [DynamicSlidingWindowLayer, WindowLayer]
    kept = torch.tensor([5, 1])
    expected = cache.layers[0].keys[kept]
    keep_rows(cache, kept, kept.device)
    assert cache.layers[0].keys.equal(expected)
    assert len(cache.layers[1].keys) == 2


PROMPTS, PLACES, GROUPS, QUERIES, SEEN, SIZE, LIMIT = 3, 8, 3, 3, 57, 64, 9
SCALING = SIZE**-0.5
# Token number -> rows; after the fifth none of prompt 1 is left.
LEAVING = {1: [2], 2: [0, 7, 12], 4: [8, 9, 10, 11, 13, 14, 15, 23], 6: [1, 3]}


@pytest.fixture(autouse=True)
def nothing_is_there_before_it_is_written() -> Iterator[None]:
    """What torch has not filled is NaN."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)  # fills what is empty
    yield
    torch.use_deterministic_algorithms(before)


def own_attention(query_HD: Tensor, keys_GLD: Tensor, values_GLD: Tensor) -> Tensor:
    """One row's, (heads, D), in float64."""
    keys, values = (one.double().repeat_interleave(QUERIES, 0) for one in (keys_GLD, values_GLD))
    weights = (keys @ query_HD.double().unsqueeze(-1) * SCALING).squeeze(-1).softmax(-1)
    return (weights.unsqueeze(1) @ values).squeeze(1)


def attended(dtype: torch.dtype, leaving: dict[int, list[int]], padded: int = 0, *, masked: bool = False) -> float:
    """The largest error of any row's attention at any token, `leaving` gone before theirs; `padded` of one prompt.

    `masked`: what is not there yet is hidden by numbers, else it is not read.
    """
    generator = torch.Generator().manual_seed(5)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(dtype)

    mask = torch.ones(PROMPTS, SEEN, dtype=torch.bool)
    mask[1, :padded] = False
    prompts = random(PROMPTS, GROUPS, SEEN, SIZE), random(PROMPTS, GROUPS, SEEN, SIZE)
    cache = SharedCache([prompts], mask, PLACES, LIMIT)
    seen = {
        row: [tuple(one[row // PLACES][:, mask[row // PLACES]] for one in prompts)] for row in range(PROMPTS * PLACES)
    }
    rows, worst = list(seen), 0.0
    for t in range(LIMIT):
        if gone := leaving.get(t):
            cache.keep(torch.tensor([place for place, row in enumerate(rows) if row not in gone]))
            rows = [row for row in rows if row not in gone]
        cache.make_room(t)
        keys, values, queries = (random(len(rows), heads, SIZE) for heads in (GROUPS, GROUPS, GROUPS * QUERIES))
        (layer,) = cache.layers
        cache.store(layer, keys, values, t)
        placed = cache.to_places(queries.flatten(1)).view(-1, GROUPS * QUERIES, SIZE)
        bias_C = mask_to_bias(torch.arange(cache.room) <= t, dtype) if masked else None
        attended_NE = cache.attend(layer, placed, SCALING, t=None if masked else t, bias_C=bias_C)
        found = cache.from_places(attended_NE).view(len(rows), -1, SIZE)
        for place, row in enumerate(rows):
            seen[row].append((keys[place].unsqueeze(1), values[place].unsqueeze(1)))
            own = own_attention(queries[place], *(torch.cat(parts, dim=1) for parts in zip(*seen[row], strict=True)))
            worst = max(worst, float((found[place].double() - own).abs().nan_to_num(float("inf")).max()))
    return worst


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("room", [2, 64])
@pytest.mark.parametrize("padded", [0, 2])
@pytest.mark.parametrize(("dtype", "error"), [(torch.float64, 1e-12), (torch.float32, 1e-5), (torch.bfloat16, 0.03)])
def test_every_row_sees_its_prompt_and_what_it_drew_itself(
    dtype: torch.dtype, error: float, padded: int, room: int, masked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FIRST_ROOM, "cpu", room)
    assert attended(dtype, {}, padded, masked=masked) < error
    assert attended(dtype, LEAVING, padded, masked=masked) < error


def test_a_place_that_nobody_has_harms_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.policies.lm.fast.kv_cache.COMPACT_BELOW", 0.0)  # the table is never made smaller
    assert attended(torch.bfloat16, LEAVING) < 0.03
    assert attended(torch.float32, LEAVING) < 1e-5
