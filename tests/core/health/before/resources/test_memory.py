"""Memory by part, on paper: P prompts of 3 tokens, completions of 5, a model of two blocks (paper.py)."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from core.config import RunSpec
from core.health.before.resources import memory
from core.health.before.resources import memory as disks
from core.health.before.resources.memory import (
    Place,
    Rows,
    Tokens,
    attention,
    block,
    disk,
    head,
    kept,
    peak,
    phases,
    shares,
    tokens_at_once,
    weights,
)
from core.policies.lm import batches
from core.policies.lm import forward as head_of_policies
from core.policies.lm.fast import attention as attention_of_models
from core.policies.lm.fast import decoder_step, decoder_weights, kv_cache
from core.training import trainer
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


def test_an_adapter_on_all_linear_layers_has_ranks_on_each() -> None:
    # r = 2 of inputs and outputs: q, o 8 + 8; k, v 8 + 4; gate, up, down 8 + 12; in two blocks
    spec = run(model={"lora": {"r": 2, "lora_alpha": 2, "target_modules": "all-linear"}})
    assert weights(spec, PAPER, "cpu").trainable == 2 * 2 * (16 + 16 + 12 + 12 + 20 + 20 + 20)


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


PLACE = Place(device="cuda", memory=2**30)
TOKENS = Tokens(prompt=3, answer=4)


def phase(spec: RunSpec, name: str, place: Place = PLACE) -> dict[str, int]:
    (found,) = (one for one in phases(spec, PAPER, TOKENS, place) if one.name == name and one.stage)
    return dict(found.parts)


def test_what_is_held() -> None:
    # 2600 weights of 4 bytes; r=2 on q (8 -> 8) and k (8 -> 4): 2 * (16 + 12) elements in each of two blocks
    found = weights(run(), PAPER, "cuda")
    assert (found.total, found.trainable) == (2600, 112)
    assert dict(found.held) == {"process": memory.PROCESS["cuda"], "weights": 10_400, "adapter": 448}
    assert phase(run(), "learn")["moments"] == 2 * 448


@pytest.mark.parametrize(
    ("model", "bytes_"),
    [
        ({"dtype": "bfloat16"}, 5_200),
        # 1640 elements outside the blocks' linear layers in 2 bytes; 960 in half a byte and 1/16 for their scales
        ({"dtype": "bfloat16", "load_in_4bit": "always"}, 3_280 + 540),
        ({"mixed_precision": "bf16"}, 10_400),
    ],
)
def test_weights_by_precision(model: dict[str, Any], bytes_: int) -> None:
    found = weights(run(model=model), PAPER, "cuda").held
    assert (found["weights"], found["adapter"]) == (bytes_, 448)  # an adapter is fp32 beside any weights


def test_without_an_adapter_all_weights_move_and_are_kept_twice() -> None:
    found = weights(run(model={"lora": None}), PAPER, "cuda")
    assert (found.trainable, found.each, found.held["reference"]) == (2600, 4, 10_400)
    bf16 = weights(run(model={"lora": None, "dtype": "bfloat16"}), PAPER, "cuda")
    assert (bf16.trainable, bf16.each, bf16.held["reference"]) == (2600, 2, 5_200)


def test_a_frozen_backbone_moves_what_its_patterns_name() -> None:
    spec = run(model={"lora": None, "trainable": ["model.layers.1.mlp.*"]})
    found = weights(spec, PAPER, "cuda")
    assert (found.trainable, found.held["reference"]) == (288, 1_152)  # three of 8 x 12
    # Nothing below the second block keeps anything for backward.
    assert phase(spec, "learn")["activations"] == block(spec.model, PAPER, ROWS, "cuda")


def test_sampling() -> None:
    # 2 prompts of 3 and 4 rows of 5 tokens; a token's keys and values are 2 * 4 elements in each of two blocks
    parts = phase(run(), "sample")
    assert parts["KV cache"] == (2 * 3 + 4 * 5) * 2 * 8 * 4
    assert parts["folded weights"] == 2 * (64 + 32) * 4  # q and k of each block, in fp32
    assert parts["logits"] == 4 * 100 * 20
    assert parts["joined weights"] == 0  # a GPU reads them where they are
    assert phase(run(model={"dtype": "bfloat16"}), "sample")["folded weights"] == 0


def test_rows_that_draw_long_have_their_cache_doubled() -> None:
    # 300 tokens are more than the first 256: the smaller room is there while the larger one is made.
    for tokens, room in ((256, 256), (300, 450)):
        parts = phase(run(grpo={"max_completion_length": tokens}), "sample")
        assert parts["KV cache"] == (2 * 3 + 4 * room) * 2 * 8 * 4


def test_autocast_on_a_gpu_samples_from_weights_that_are_cast_once() -> None:
    parts = phase(run(model={"mixed_precision": "bf16"}), "sample")
    assert parts["KV cache"] == phase(run(), "sample")["KV cache"] / 2
    assert parts["joined weights"] == 2 * PAPER.block_linear * 2 + 100 * 8 * 2  # of two blocks and the head, in bf16


def test_another_family_has_every_rows_prompt_in_its_cache() -> None:
    # 4 rows of 8 tokens: two blocks, one block's copy while a token is added, its 2 * 8 elements repeated for each head
    other = replace(PAPER, family="gemma")
    (found,) = (one for one in phases(run(), other, TOKENS, Place(device="cpu", memory=2**30)) if one.name == "sample")
    assert found.parts["KV cache"] == 4 * 8 * 4 * (2 * 8 + 8 + 16)
    assert found.parts["joined weights"] == 0


@pytest.mark.parametrize(
    ("model", "bytes_"),
    [
        ({}, 2 * 480 * 4),  # all linear layers of two blocks: 8 x 8 twice, 8 x 4 twice, 8 x 12 three times
        ({"dtype": "bfloat16"}, 2 * 480 * 2),
        ({"mixed_precision": "bf16"}, 2 * 480 * 2 + 100 * 8 * 2),  # and the head, which is cast
        ({"dtype": "bfloat16", "load_in_4bit": "always"}, 0),
    ],
)
def test_on_the_cpu_weights_are_put_side_by_side(model: dict[str, Any], bytes_: int) -> None:
    cpu = Place(device="cpu", memory=2**30)
    assert phase(run(model=model), "sample", cpu)["joined weights"] == bytes_


def test_weights_that_are_too_many_stay_where_they_are() -> None:
    cpu, large = Place(device="cpu", memory=2**30), replace(PAPER, layers=10_000, intermediate=2**12)
    (found,) = (one for one in phases(run(), large, TOKENS, cpu) if one.name == "sample")
    assert found.parts["joined weights"] == 0


def test_scoring_takes_a_group_or_a_micro_batch_of_the_reference() -> None:
    # Without a KL one group of 2 is scored; with one, all 4 rows in two micro-batches of 2, or at once.
    assert phase(run(), "score")["logits"] == 2 * 5 * 100 * 4
    whole = run(grpo={"beta": 0.1, "gradient_accumulation_steps": 1})
    assert phase(whole, "score")["logits"] == 4 * 5 * 100 * 4
    assert phase(run(grpo={"beta": 0.1, "gradient_accumulation_steps": 2}), "score")["logits"] == 2 * 5 * 100 * 4
    # One layer's vectors of 26 tokens, and a mask of each row
    assert phase(whole, "score")["activations"] == 26 * (3 * 12 + 4 * 8) * 4 + 4 * 64 * 4


def test_learning() -> None:
    # 4 rows of 2 prompts in one pass; two blocks
    parts = phase(run(), "learn")
    assert parts["activations"] == 2 * block(run().model, PAPER, ROWS, "cuda")
    assert parts["logits"] == 20 * 100 * 4 + 20 * 8 * 4
    assert parts["gradients"] == 448 * 2  # the sum, and the one term's share of it


def test_a_micro_batch_is_what_its_budget_of_tokens_holds() -> None:
    # A token takes 2 * 128 * 4 bytes; a quarter of the memory holds 13 of them, which are one group of two.
    tight = Place(device="cuda", memory=4 * 13 * 1024)
    assert tokens_at_once(run().model, PAPER, tight.sampling_room) == 13
    one = Rows(count=2, group=2, prompt=3, completion=5)
    assert phase(run(), "learn", tight)["activations"] == 2 * block(run().model, PAPER, one, "cuda")


def test_on_the_cpu_the_heap_keeps_some() -> None:
    cpu = phase(run(), "learn", Place(device="cpu", memory=2**30))
    assert cpu["heap"] == int(cpu["activations"] * memory.HEAP)
    checkpointed = run(model={"gradient_checkpointing": True})
    blocks = 2 * block(checkpointed.model, PAPER, ROWS, "cpu")
    assert phase(checkpointed, "learn", Place(device="cpu", memory=2**30))["heap"] == int(memory.HEAP * blocks)
    assert phase(run(), "learn")["heap"] == 0


def test_however_many_terms_one_gradient_stands_beside_the_sum() -> None:
    spec = run(grpo={"beta": 0.1, "entropy_coef": 0.01})
    parts = phase(spec, "learn")
    assert parts["gradients"] == 448 * 2
    assert parts["logits"] == 20 * 100 * 8 + 2 * 20 * 8 * 4  # entropies have a table and a vector of their own
    assert phase(run(grpo={"beta": 0.1, "kl_in": "reward"}), "learn")["gradients"] == 448 * 2


def test_checkpointing_keeps_block_inputs_and_one_block() -> None:
    # 2 prompts x 3 and 4 rows x 5 tokens, x 8 x 4 bytes for each of two blocks; one block's, made again
    spec = run(model={"gradient_checkpointing": True})
    parts, one = phase(spec, "learn"), block(spec.model, PAPER, ROWS, "cuda")
    assert parts["activations"] == 2 * 26 * 8 * 4 + max(0, one - parts["logits"])
    assert one > parts["logits"]


def test_supervised_stages_learn_from_answers() -> None:
    spec = run(stages={"sft": {"kind": "sft", "max_steps": 1, "prompts_per_step": 3, "learning_rate": 0.1}})
    (found,) = (one for one in phases(spec, PAPER, TOKENS, PLACE) if one.stage)
    assert (found.name, found.parts["logits"]) == ("learn", 3 * 4 * (100 * 4 + 8 * 4))


@pytest.mark.parametrize(
    ("changes", "lower"),
    [
        ({"grpo": {"gradient_accumulation_steps": 4}}, True),
        ({"grpo": {"max_completion_length": 2}}, True),
        ({"grpo": {"num_generations": 4}}, False),
        ({"grpo": {"max_completion_length": 6}}, False),
        ({"grpo": {"prompts_per_step": 3}}, False),
        ({"model": {"dtype": "bfloat16"}}, True),
    ],
)
def test_which_way_each_setting_moves_the_update(changes: dict[str, Any], lower: bool) -> None:
    before, after = sum(phase(run(), "learn").values()), sum(phase(run(**changes), "learn").values())
    assert (after < before) is lower
    assert after != before


def test_the_peak_is_the_largest_phase() -> None:
    found = phases(run(), PAPER, TOKENS, PLACE)
    assert peak(found).bytes == max(sum(one.parts.values()) for one in found)


def test_sampling_is_bounded_as_the_policy_bounds_it() -> None:
    assert memory.SAMPLED_WORD == batches.PER_WORD
    assert memory.SAMPLING_ROOM == {"cpu": batches.ON_CPU, "cuda": batches.OF_A_DEVICE}
    assert memory.SCORED_EVALUATION == trainer.EVALUATION_CHECKED
    assert (memory.JOINED, memory.ROOM) == (decoder_step.MAX_JOINED_BYTES, kv_cache.FIRST_ROOM)
    # Room for 5 rows, groups of 2: 4 rows; of a group there is always one.
    row = 2 * 2 * 4 * 4 * 8 + 24 * 100
    five = Place(device="cuda", memory=4 * 5 * row)
    sizes = [memory.at_once(run().model, PAPER, group=group, width=8, place=five) for group in (1, 2, 8)]
    assert sizes == [5, 4, 8]


def test_disk_on_paper() -> None:
    found = disk(run(), PAPER, "cpu")
    assert found.checkpoint == 3 * 448  # weights that move, and two moments
    assert found.checkpoints == 4 * 3 * 448  # two are kept, the best one, and one is being written
    assert found.export == 448 + disks.TOKENIZER
    assert found.merged == 0
    assert found.records == disks.STORE + 10 * disks.STEP + 40 * (disks.SAMPLE + 5 * disks.TOKEN)
    assert found.total == found.checkpoints + found.export + found.records


def test_a_reference_that_moves_is_held_and_stored_beside_an_adapter() -> None:
    moving = run(grpo={"sync_ref_model": True, "beta": 0.1})
    assert weights(moving, PAPER, "cpu").held["reference"] == 448
    assert "reference" not in weights(run(grpo={"beta": 0.1}), PAPER, "cpu").held
    assert disk(moving, PAPER, "cpu").checkpoint == 4 * 448  # weights, reference, two moments
    whole = run(model={"lora": None}, grpo={"sync_ref_model": True, "beta": 0.1})
    assert weights(whole, PAPER, "cpu").held["reference"] == 10_400  # the one that is there anyway


@pytest.mark.parametrize(
    ("optim", "bytes_"),
    [("adamw_torch", 2 * 448), ("adamw_8bit", 2 * 112), ("lion_8bit", 112), ("rmsprop", 448), ("sgd", 0)],
)
def test_moments_by_optimiser(optim: str, bytes_: int) -> None:
    spec = run(grpo={"optim": optim})  # 112 weights of 4 bytes move
    assert phase(spec, "learn")["moments"] == bytes_
    assert next(one for one in phases(spec, PAPER, TOKENS, PLACE) if one.name == "evaluate").parts["moments"] == bytes_
    assert disk(spec, PAPER, "cpu").checkpoint == 448 + bytes_


def test_a_whole_model_is_exported_where_all_weights_moved_or_it_is_asked_for() -> None:
    assert disk(run(model={"lora": None}), PAPER, "cpu").export == 10_400 + disks.TOKENIZER
    merged = run().model_copy(update={"export": run().export.model_copy(update={"merged": True})})
    assert disk(merged, PAPER, "cpu").merged == 10_400 + disks.TOKENIZER
