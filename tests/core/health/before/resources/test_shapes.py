"""Shapes of models: parameter counts against what is published, and against transformers' own models."""

from __future__ import annotations

from math import prod
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from core.errors import ModelError
from core.health.before.resources.shapes import PUBLISHED, from_config
from tests.core.health.before.resources.paper import PAPER

SMALL = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 24,
}


@pytest.mark.parametrize(
    ("source", "parameters"),
    [  # as the models' pages state them, but for the built-in one
        ("HuggingFaceTB/SmolLM2-135M-Instruct", 134_515_008),
        ("HuggingFaceTB/SmolLM2-360M-Instruct", 361_821_120),
        ("HuggingFaceTB/SmolLM2-1.7B-Instruct", 1_711_376_384),
        ("Qwen/Qwen2.5-0.5B-Instruct", 494_032_768),
        ("Qwen/Qwen2.5-1.5B-Instruct", 1_543_714_304),
        ("Qwen/Qwen2.5-3B-Instruct", 3_085_938_688),
        ("Qwen/Qwen2.5-7B-Instruct", 7_615_616_512),
        # 400 x 128 words; q, o 128 x 128 + 128 (q's bias); k, v 128 x 64 + 64; three of 128 x 256; three norms of 128
        ("builtin:tiny", 51_200 + 2 * 16_384 + 128 + 2 * (8_192 + 64) + 3 * 32_768 + 3 * 128),
    ],
)
def test_published_shapes_have_the_published_number_of_weights(source: str, parameters: int) -> None:
    assert PUBLISHED[source].total == parameters


@pytest.mark.parametrize(
    ("family", "more"),
    [
        ("llama", {}),
        ("llama", {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}),
        ("mistral", {"head_dim": 8}),
        ("qwen2", {"tie_word_embeddings": True}),
        ("qwen3", {"head_dim": 6}),
        ("qwen3", {"head_dim": 4, "attention_bias": True}),
    ],
)
def test_every_parameter_is_the_one_that_transformers_makes(family: str, more: dict[str, Any]) -> None:
    config = AutoConfig.for_model(family, **SMALL, **more)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    theirs = {name: prod(parameter.shape) for name, parameter in model.named_parameters()}
    shape = from_config(config.to_dict(), "here")
    assert shape.exact
    assert shape.parameters() == theirs


def test_another_family_is_taken_for_a_llama_and_says_so() -> None:
    shape = from_config({**SMALL, "model_type": "olmo9"}, "here")
    assert (shape.exact, shape.kv_size, shape.head_size) == (False, 8, 4)


@pytest.mark.parametrize("missing", ["hidden_size", "intermediate_size", "vocab_size"])
def test_a_configuration_that_lacks_a_size_is_refused(missing: str) -> None:
    config = {name: value for name, value in SMALL.items() if name != missing}
    with pytest.raises(ModelError, match=rf"'here' \(t5\) has no {missing}"):
        from_config({**config, "model_type": "t5"}, "here")


def test_a_size_that_is_no_number_is_refused() -> None:
    with pytest.raises(ModelError, match="hidden_size"):
        from_config({**SMALL, "hidden_size": "wide"}, "here")


def test_a_block_on_paper() -> None:
    # q, o 8 x 8; k, v 8 x 4; gate, up, down 8 x 12: 64 + 64 + 32 + 32 + 3 * 96 = 480
    assert PAPER.block_linear == 480
    # two words' tables of 800, two blocks of 480 and two norms of 8, the last norm
    assert PAPER.total == 1600 + 2 * (480 + 16) + 8
