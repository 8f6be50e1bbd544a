"""What a pass keeps, on paper: prompts of 3 tokens, completions of 5, a model of two blocks (paper.py)."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from core.health.before.resources import memory
from core.health.before.resources.memory import Rows, attention, block, head, kept, shares, tokens_at_once
from core.policies.lm import batches
from core.policies.lm import forward as head_of_policies
from core.policies.lm.fast import attention as attention_of_models
from core.policies.lm.fast import decoder_weights
from tests.core.health.before.resources.paper import PAPER, run

ROWS = Rows(count=4, group=2, prompt=3, completion=5)
OTHER = replace(PAPER, family="gemma")  # a family that goes its own way


def test_a_prompt_is_run_once_or_with_every_row() -> None:
    assert (ROWS.prompts, ROWS.drawn, ROWS.width) == (2, 20, 8)
    assert ROWS.tokens(shared=True) == 2 * 3 + 4 * 5
    assert ROWS.tokens(shared=False) == 4 * 8
    assert replace(ROWS, count=3).prompts == 2  # one of them with half of its group


@pytest.mark.parametrize(
    ("budget", "count"),
    [(99, 4), (26, 4), (25, 2), (13, 2), (12, 1), (8, 1), (1, 1)],  # a group takes 3 + 2 * 5 = 13 tokens, a row 8
)
def test_a_micro_batch_has_whole_groups_where_one_fits(budget: int, count: int) -> None:
    assert ROWS.within(budget).count == count


@pytest.mark.parametrize(
    ("family", "shared"), [("llama", True), ("qwen3", True), ("qwen2", True), ("gemma", False), ("mistral", False)]
)
def test_who_shares_prompts(family: str, shared: bool) -> None:
    assert shares(replace(PAPER, family=family)) is shared


@pytest.mark.parametrize(
    ("model", "bytes_"),
    [
        # fp32: two norms' inputs of 8, one input of q and k, the MLP's 3 * 12, in 4 bytes; two ranks of 2
        ({}, 4 * (16 + 8 + 36) + 4 * 4),
        # bf16: half of it, the adapters being cast as they are
        ({"dtype": "bfloat16"}, 2 * (16 + 8 + 36) + 2 * 4),
        # PEFT's own adapters: under autocast (whose norms are ours) or in 4 bits, a cast of 8 * 4 for each of the two
        ({"mixed_precision": "bf16"}, 2 * (16 + 8 + 36) + 4 * 4 + 2 * 8 * 4),
        ({"dtype": "bfloat16", "load_in_4bit": "always"}, 2 * (16 + 8 + 36) + 4 * 4 + 2 * 8 * 4),
        # checkpointing: a layer that is run again keeps what it would have kept
        ({"dtype": "bfloat16", "gradient_checkpointing": True}, 2 * (16 + 8 + 36) + 2 * 4),
        # all weights: both inputs, and the MLP's product for down_proj
        ({"lora": None}, 4 * (16 + 8 + 8 + 12 + 36)),
    ],
)
def test_what_a_block_keeps_of_a_token(model: dict[str, Any], bytes_: int) -> None:
    assert kept(run(model=model).model, PAPER) == bytes_


def test_dropout_keeps_a_dropped_copy_and_its_mask() -> None:
    plain_ = run().model
    assert plain_.lora is not None
    dropped = plain_.model_copy(update={"lora": plain_.lora.model_copy(update={"lora_dropout": 0.1})})
    assert kept(dropped, PAPER) - kept(plain_, PAPER) == 2 * 8 * 5


def test_attention_of_short_rows_keeps_its_weights() -> None:
    # 26 tokens: queries and outputs of 8, keys and values of 4; twice 4 heads x 20 tokens x 8 keys; 2 prompts of 3 x 3
    model = run().model
    assert attention(model, PAPER, ROWS, "cpu") == 4 * (26 * (16 + 8) + 2 * 4 * 20 * 8 + 4 * 2 * 9)
    half = run(model={"dtype": "bfloat16"}).model
    assert attention(half, PAPER, ROWS, "cpu") == 2 * (26 * (16 + 8) + 2 * 4 * 20 * 8) + 6 * 4 * 2 * 9


def test_attention_of_long_rows_and_on_a_gpu_repeats_the_prompts() -> None:
    # 26 tokens' queries and outputs; keys and values of 4 rows x 8 tokens, one for each head; a mask of 8 x 8 for each
    repeated = 4 * (26 * 16 + 32 * 16 + 4 * 64)
    assert attention(run().model, PAPER, ROWS, "cuda") == repeated
    long = replace(ROWS, count=2, group=2, completion=2050)
    assert attention(run().model, PAPER, long, "cpu") == attention(run().model, PAPER, long, "cuda")
    just = replace(long, completion=2046)  # 4 bytes x 4 heads x 2 x 2046 x 2049: 2^27 and more
    assert attention(run().model, PAPER, just, "cpu") == attention(run().model, PAPER, just, "cuda")
    short = replace(long, completion=1446)  # 4 x 4 x 2 x 1446 x 1449: just below 2^26
    assert attention(run().model, PAPER, short, "cpu") != attention(run().model, PAPER, short, "cuda")


def test_who_shares_nothing_keeps_every_row_whole() -> None:
    whole = 4 * (32 * 2 * 16 + 4 * 64)
    assert attention(run().model, OTHER, ROWS, "cpu") == whole
    again = attention(run(model={"gradient_checkpointing": True}).model, PAPER, ROWS, "cpu")
    assert again == attention(run().model, PAPER, ROWS, "cpu") != whole


def test_norms_of_another_family_are_transformers_own_in_fp32() -> None:
    bf16, moved = run(model={"dtype": "bfloat16"}).model, run(model={"lora": None}).model
    assert kept(bf16, OTHER) == 4 * 16 + 2 * (8 + 36) + 4 * 4 + 2 * 8 * 4  # and the adapter is PEFT's own
    assert kept(moved, OTHER) == 4 * (16 + 16 + 8 + 8 + 12 + 36)  # their product is kept where their weights move


def test_heads_that_are_normalised_keep_what_went_in() -> None:
    model, normed = run(model={"dtype": "bfloat16"}).model, replace(PAPER, family="qwen3", head_norms=True)
    more = attention(model, normed, ROWS, "cuda") - attention(model, PAPER, ROWS, "cuda")
    assert more == 26 * 2 * 8 * 2


def test_a_block_is_its_tokens_and_its_attention() -> None:
    model = run().model
    assert block(model, PAPER, ROWS, "cpu") == 26 * 256 + attention(model, PAPER, ROWS, "cpu")


@pytest.mark.parametrize(
    ("model", "entropy", "learns", "bytes_"),
    [
        ({}, False, False, 20 * 100 * 4),  # all 20 tokens are one chunk: their logits once, in fp32
        ({}, False, True, 20 * 100 * 4 + 20 * 8 * 4),  # and a vector of 8 for each
        ({}, True, True, 20 * 100 * 8 + 2 * 20 * 8 * 4),
        ({"dtype": "bfloat16"}, False, False, 20 * 100 * 6),  # and once as they came
        ({"lora": None}, False, True, 20 * 100 * 12),  # a head that moves: run again
        ({"lora": None, "trainable": ["model.layers.*"]}, False, True, 20 * 100 * 4 + 20 * 8 * 4),
    ],
)
def test_the_head(model: dict[str, Any], entropy: bool, learns: bool, bytes_: int) -> None:
    assert head(run(model=model).model, PAPER, ROWS, "cpu", entropy=entropy, learns=learns) == bytes_


def test_the_heads_table_is_a_chunk_of_all_tokens() -> None:
    many = replace(ROWS, count=2**15)  # 163,840 tokens x 100 words; 2^26 bytes are 167,772 of them, 2^28 four times
    words = replace(PAPER, vocabulary=1000)
    assert head(run().model, words, many, "cpu", entropy=False, learns=False) == 16_777 * 1000 * 4
    assert head(run().model, words, many, "cuda", entropy=False, learns=False) == 67_108 * 1000 * 4
    assert head(run().model, OTHER, ROWS, "cpu", entropy=True, learns=True) == 20 * 100 * 16  # all there at once


def test_numbers_that_stand_where_the_work_is_done() -> None:
    assert decoder_weights.PLAIN_DECODERS == memory.QUICK
    assert attention_of_models.MAX_SCORE_BYTES == memory.SCORES
    assert head_of_policies.CHUNK_BYTES == memory.CHUNK
    config = SimpleNamespace(num_hidden_layers=2, hidden_size=8, intermediate_size=12)
    for dtype, size in (("float32", 4), ("bfloat16", 2)):
        asked = tokens_at_once(run(model={"dtype": dtype}).model, PAPER, 10_000)
        assert asked == batches.tokens_at_once(config, size, 10_000) == 10_000 // (2 * (10 * 8 + 4 * 12) * size)
