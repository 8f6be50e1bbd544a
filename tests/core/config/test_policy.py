"""The precision in which a model computes, by its settings."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from core.config import LoraSpec, ModelSpec


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


def test_all_linear_is_a_text_or_the_only_item_of_a_list() -> None:
    for given in ("all-linear", ["all-linear"]):
        lora = LoraSpec.model_validate({"r": 4, "lora_alpha": 8, "target_modules": given})
        assert (lora.target_modules, lora.targets) == (("all-linear",), "all-linear")
    named = LoraSpec(r=4, lora_alpha=8, target_modules=("q_proj",))
    assert (named.all_linear, named.targets) == (False, ["q_proj"])
    with pytest.raises(ValidationError, match="got q_proj, all-linear; allowed: all-linear alone"):
        LoraSpec(r=4, lora_alpha=8, target_modules=("q_proj", "all-linear"))
