"""The cache with room: what it shows is what a DynamicCache holds, whoever leaves."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicSlidingWindowLayer

from core.policies.lm.fast.kv_cache import WindowLayer, keep_rows, repeat_with_room, rows_after_leaving

LAYERS, PROMPTS, K, HEADS, SIZE = 2, 2, 3, 2, 4


def states(seed: int, rows: int, tokens: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    keys, values = torch.randn(2, rows, HEADS, tokens, SIZE, generator=generator)
    return keys, values


def filled(layers: list[Any] | None = None) -> DynamicCache:
    cache = DynamicCache()
    cache.layers += layers or []
    for layer in range(LAYERS):
        cache.update(*states(layer, PROMPTS, 5), layer)
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
    rows = list(range(PROMPTS * K))
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
    cache.update(*states(1, PROMPTS * K, 1), 0)
    assert cache.layers[0].keys.data_ptr() == place
    with pytest.raises(RuntimeError):  # and nowhere else
        cache.update(*states(1, PROMPTS * K, 2), 0)


def test_a_layer_of_another_kind_stays_as_it_is() -> None:
    cache = filled([DynamicSlidingWindowLayer(sliding_window=3)])
    repeat_with_room(cache, K, room=2)
    assert [type(layer) for layer in cache.layers] == [DynamicSlidingWindowLayer, WindowLayer]
    kept = torch.tensor([5, 1])
    expected = cache.layers[0].keys[kept]
    keep_rows(cache, kept, kept.device)
    assert cache.layers[0].keys.equal(expected)
    assert len(cache.layers[1].keys) == 2
