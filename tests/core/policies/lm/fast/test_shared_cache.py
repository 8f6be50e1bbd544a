"""The table of keys and values, against each row's own attention over all it has seen, as rows leave one by one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from core.policies.lm.fast.attention import mask_to_bias
from core.policies.lm.fast.kv_cache import FIRST_ROOM, SharedCache

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
