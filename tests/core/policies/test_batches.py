"""How many rows are sampled at once, and that nobody can tell from what was drawn."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import PretrainedConfig, Qwen2Config

from core.policies.base import Rollout, RowKey, Sampling
from core.policies.batches import UNKNOWN_SHAPE, rows_at_once, sampling_budget
from core.tasks.base import Example
from tests.fakes import small_policy

PROMPTS = [Example(id=str(n), prompt="abcdefghij"[: 2 * n + 1]) for n in range(5)]


def config(**words: Any) -> Qwen2Config:
    return Qwen2Config(
        vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=8, **words
    )


@pytest.mark.parametrize(
    ("words", "itemsize", "tokens", "budget", "rows"),
    [
        # keys and values of 2 layers x 4 heads x 8 numbers x 4 bytes = 512 a token; 24 x 100 words = 2400 a row
        ({"num_key_value_heads": 4}, 4, 10, 10 * (5120 + 2400), 10),
        ({"num_key_value_heads": 4}, 4, 10, 10 * (5120 + 2400) - 1, 9),
        ({"num_key_value_heads": 2}, 4, 10, 10 * (2560 + 2400), 10),  # half the heads are kept
        ({"num_key_value_heads": 4}, 2, 10, 10 * (2560 + 2400), 10),  # half the bytes
        ({"num_key_value_heads": 4}, 4, 20, 10 * (10240 + 2400), 10),  # twice the tokens
        ({"num_key_value_heads": 4, "head_dim": 16}, 4, 10, 10 * (10240 + 2400), 10),  # not hidden / heads
        ({"num_key_value_heads": 4}, 4, 10, 1, 1),  # one must be
    ],
)
def test_rows_are_what_their_cache_and_their_words_take(
    words: dict[str, int], itemsize: int, tokens: int, budget: float, rows: int
) -> None:
    assert rows_at_once(config(**words), itemsize, tokens, budget) == rows


def test_a_model_of_unknown_shape_gets_a_fixed_number() -> None:
    assert rows_at_once(PretrainedConfig(), 4, 100, 2**30) == UNKNOWN_SHAPE


def test_the_budget_does_not_depend_on_what_is_free() -> None:
    assert sampling_budget(torch.device("cpu")) == 2**30


def drawn(k: int, sampling_bytes: float) -> Rollout:
    policy = small_policy(lora_dropout=0.0)
    policy.sampling_bytes = sampling_bytes
    keys = [RowKey(3, 0, 1, 0, row) for row in range(len(PROMPTS) * k)]
    return policy.sample(PROMPTS, k, Sampling(temperature=1.0, max_completion_length=12), keys)


@pytest.mark.parametrize("k", [1, 3])
def test_small_batches_draw_what_one_large_batch_draws(k: int) -> None:
    whole, parts = drawn(k, 2**30), drawn(k, 1.0)  # 1 byte: one prompt at a time
    assert parts.outputs == whole.outputs
    assert parts.prompt_N.tolist() == whole.prompt_N.tolist()
    assert parts.truncated_N.tolist() == whole.truncated_N.tolist()
    for name in ("prompt_ids", "prompt_mask", "ids"):
        assert parts.actions[name].equal(whole.actions[name]), name
    assert parts.mask_NT.equal(whole.mask_NT)
    assert parts.drawn_NT is not None
    torch.testing.assert_close(parts.drawn_NT, whole.drawn_NT, atol=1e-5, rtol=0)
    assert len({len(text) for text in whole.outputs}) > 1  # some parts are narrower than others
