"""How many rows are sampled at once, and that nobody can tell from what was drawn."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import PretrainedConfig, Qwen2Config

from core.policies.base import Rollout, Sampling
from core.policies.lm.batches import (
    UNKNOWN_SHAPE,
    UNKNOWN_TOKENS,
    PromptRows,
    micro_batches,
    rows_at_once,
    sampling_budget,
    tokens_at_once,
)
from core.randomness import RowKey
from core.tasks.text import text_example
from tests.fakes import small_policy, small_qwen2

PROMPTS = [text_example(id=str(n), prompt="abcdefghij"[: 2 * n + 1]) for n in range(5)]


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


def run(first: int, lengths: list[int], prompt: int = 10) -> PromptRows:
    return PromptRows(rows=range(first, first + len(lengths)), lengths=lengths, prompt=prompt)


def test_groups_of_like_length_are_put_together() -> None:
    # By their longest: group B (9), D (8), A (3), C (2). B and D cost 2 * 10 + 4 * 9 = 56, D and A 52, A and C 32.
    runs = [run(0, [3, 1]), run(2, [2, 9]), run(4, [2, 2]), run(6, [8, 8])]
    assert micro_batches(runs, limit=4, budget=100) == [[3, 2, 6, 7], [0, 1, 4, 5]]
    assert micro_batches(runs, limit=100, budget=56) == [[3, 2, 6, 7], [0, 1, 4, 5]]
    assert micro_batches(runs, limit=100, budget=55) == [[3, 2], [6, 7, 0, 1], [4, 5]]
    assert micro_batches(runs, limit=100, budget=51) == [[3, 2], [6, 7], [0, 1, 4, 5]]
    assert micro_batches(runs, limit=100, budget=4 * 10 + 8 * 9) == [[3, 2, 6, 7, 0, 1, 4, 5]]


def test_a_group_that_does_not_fit_is_cut_its_longest_rows_first() -> None:
    # 30 tokens less 10 of the prompt: two rows of 9, then 3 and 2 and 2 beside each other.
    assert micro_batches([run(0, [9, 2, 9, 3, 2])], limit=5, budget=30) == [[0, 2], [3, 1, 4]]
    assert micro_batches([run(0, [9, 2, 9, 3, 2])], limit=2, budget=99) == [[0, 2], [3, 1], [4]]
    assert micro_batches([run(0, [9, 9])], limit=9, budget=1) == [[0], [1]]  # a row at least
    assert micro_batches([run(0, [0, 0])], limit=9, budget=99) == [[0, 1]]
    assert micro_batches([], limit=9, budget=99) == []


def test_tokens_are_what_their_blocks_keep() -> None:
    # Two blocks of (10 * 32 + 4 * 64) numbers in 4 bytes: 2 * 2,304 = 4,608 a token.
    config = small_qwen2().config
    assert tokens_at_once(config, 4, 4608 * 7 + 1) == 7
    assert tokens_at_once(config, 4, 1) == 1
    assert tokens_at_once(SimpleNamespace(), 4, 1) == UNKNOWN_TOKENS
