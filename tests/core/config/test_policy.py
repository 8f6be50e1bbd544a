"""The precision in which a model computes, by its settings."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from core.config import ModelSpec


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "bfloat16"),  # auto, and no machine was asked yet: the coarser limit accuses nobody
        ({"dtype": "float32"}, "float32"),
        ({"dtype": "bfloat16"}, "bfloat16"),
        ({"dtype": "float32", "mixed_precision": "bf16"}, "bfloat16"),
        # loaded so: the rounding of bfloat16 is no fault of the sampler
        ({"dtype": "float32", "load_in_4bit": "always"}, "bfloat16"),
        ({"dtype": "float32", "load_in_4bit": "auto"}, "float32"),
    ],
)
def test_the_precision_that_rounding_is_expected_from(settings: dict[str, Any], expected: str) -> None:
    lora = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj"]}
    assert ModelSpec.model_validate({"source": "a/b", "lora": lora, **settings}).computes_in == expected


@pytest.mark.parametrize("name", ["add_generation_prompt", "tokenize", "enable thinking", "no-think", ""])
def test_variables_of_a_chat_template_are_names_of_its_own(name: str) -> None:
    assert ModelSpec(source="m", chat_template_kwargs={"enable_thinking": False}).chat_template_kwargs
    with pytest.raises(ValidationError) as refused:
        ModelSpec(source="m", chat_template_kwargs={name: True})
    assert refused.value.errors()[0]["ctx"]["key"] == "chat_template_kwargs"
    assert repr(name) in str(refused.value)
