"""--set: keys by their name or the end of their key in a spec, values of the field's kind."""

from __future__ import annotations

from dataclasses import fields

import pytest

from core.errors import SpecError
from core.health.case import Settings
from grpoctl.diagnose.readers.user_settings import typed_settings


@pytest.mark.parametrize(
    ("key", "text", "name", "value"),
    [
        ("num_generations", "8", "num_generations", 8),
        ("max_steps", "1e3", "max_steps", 1000),
        ("learning_rate", "2e-6", "learning_rate", 2e-6),
        ("stages.grpo.beta", "0.01", "beta", 0.01),
        ("stages.warm-up.beta.start", "0.01", "beta", 0.01),
        ("advantage.scale_rewards", "batch", "scale_rewards", "batch"),
        ("stages.grpo.advantage.clip", "5", "advantage_clip", 5.0),
        ("model.lora.lora_dropout", "0.05", "lora_dropout", 0.05),
        ("gradient_checkpointing", "true", "gradient_checkpointing", True),
        ("skip_without_signal", "False", "skip_without_signal", False),
        ("transform", "rank", "transform", "rank"),
        ("dtype", "bfloat16", "dtype", "bfloat16"),
        ("lr_scheduler_type", "constant_with_warmup", "lr_scheduler_type", "constant_with_warmup"),
        ("beta", "null", "beta", None),
        ("groups_per_row", "640", "groups_per_row", 640),
        ("stages.grpo.repetition_penalty", "1.1", "repetition_penalty", 1.1),
        ("stages.grpo.optim", "adamw_8bit", "optimizer", "adamw_8bit"),
        ("group_sizes", "3, 5", "group_sizes", (3, 5)),
        ("old_policy", "reference", "old_policy", "reference"),
        ("scale_rewards", "none", "scale_rewards", "none"),  # a word of the spec, not "unknown"
    ],
)
def test_a_setting_is_typed(key: str, text: str, name: str, value: object) -> None:
    said = typed_settings({key: text})
    assert said == {name: value}
    assert type(said[name]) is type(value)


def test_every_field_can_be_said() -> None:
    assert all(typed_settings({field.name: "null"}) == {field.name: None} for field in fields(Settings))


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("lr", "1e-6", "did you mean learning_rate"),
        ("kl_coef", "0.1", "did you mean beta"),
        ("num_generation", "8", "did you mean num_generations"),
        ("zzz", "1", "known: num_generations"),
        ("num_generations", "2.5", "a whole number"),
        ("num_generations", "-1", "at least 0"),
        ("learning_rate", "fast", "a number"),
        ("learning_rate", "nan", "a number"),
        ("gradient_checkpointing", "1", "true, false"),
        ("scale_rewards", "rank", "allowed: none, group, batch"),
        ("dtype", "int4", "float32, bfloat16"),
        ("num_iterations", "2", "say updates_per_rollout, which is num_iterations x minibatches"),
        ("num_generations", "0", "at least 1"),
        ("max_steps", "0", "at least 1"),
        ("ddof", "5", "0 to 1"),
        ("group_sizes", "3,one", "commas between them"),
        ("group_sizes", "1", "at least 2"),
        ("top_p", "2", "0 to 1"),
        ("min_p", "1.5", "0 to 1"),
    ],
)
def test_what_is_wrong_is_said(key: str, text: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        typed_settings({key: text})


def test_one_setting_by_two_names_is_refused() -> None:
    with pytest.raises(SpecError, match="set twice"):
        typed_settings({"beta": "0.1", "stages.grpo.beta": "0.2"})
