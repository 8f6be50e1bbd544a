"""The values of `trainer.args`: what TRL's annotations say, refused and allowed without TRL."""

from __future__ import annotations

import dataclasses
import types
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest

from core.config.trl.fields import FIELDS, TRAINER_ARGUMENTS
from core.config.trl.values import REFERENCES, combination_problems, kinds, value_problem, words

PASSED = [field.name for field in FIELDS.values() if field.how == "passed"]
# What a kind is in Python; a word that is a value is text.
PYTHON = {"null": type(None), "bool": bool, "int": int, "number": float, "mapping": dict, "texts": list}
# transformers 5.23 says `str | None`, and takes true, which its own warning asks for.
BEYOND = {("fsdp", bool)}


def python_types(annotation: Any) -> set[Any]:
    """The types that an annotation allows, without what is in lists and mappings."""
    if get_origin(annotation) in (Union, types.UnionType):
        return {one for part in get_args(annotation) for one in python_types(part)}
    return {get_origin(annotation) or annotation}


def of_kind(kind: str) -> Any:
    return PYTHON.get(kind.partition(">")[0].partition(" ")[0], str)


@pytest.mark.parametrize("name", PASSED)
def test_a_field_takes_what_its_annotation_allows(name: str) -> None:
    from trl import GRPOConfig

    allowed = python_types(get_type_hints(GRPOConfig)[name])
    ours = {of_kind(kind) for kind in kinds(name)}
    assert {kind for kind in ours if (name, kind) not in BEYOND} <= allowed
    assert (type(None) in ours) == (type(None) in allowed)
    assert words(name)


@pytest.mark.parametrize("name", PASSED)
def test_a_fields_default_is_allowed(name: str) -> None:
    from trl import GRPOConfig

    (field,) = [field for field in dataclasses.fields(GRPOConfig) if field.name == name]
    assert value_problem(name, field.default) is None
    for choice in field.metadata.get("choices") or ():
        assert value_problem(name, choice) is None


def test_what_grpotrainer_itself_takes_is_known() -> None:
    assert set(REFERENCES) == set(TRAINER_ARGUMENTS)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("use_vllm", True),
        ("vllm_mode", "server"),
        ("vllm_gpu_memory_utilization", 0.5),
        ("vllm_server_timeout", 60),  # a whole number is a number
        ("vllm_max_model_length", None),
        ("deepspeed", "zero3.json"),
        ("deepspeed", {"zero_optimization": {"stage": 3}}),
        ("optim_target_modules", ["q_proj"]),
        ("include_num_input_tokens_seen", "all"),
        ("fsdp", True),
        ("tools", ["./tools.py:search", "package.module:look"]),
        ("environment_factory", "./env.py:Env"),
    ],
)
def test_values_that_are_passed(name: str, value: Any) -> None:
    assert value_problem(name, value) is None


@pytest.mark.parametrize(
    ("name", "value", "facts"),
    [
        ("use_vllm", "yes", ["'yes'", "true or false"]),
        ("use_vllm", 1, ["got 1", "true or false"]),
        ("use_vllm", None, ["null", "true or false"]),
        ("vllm_mode", "foo", ["'foo'", "server, colocate"]),
        ("vllm_server_port", "many", ["'many'", "1 to 65535"]),
        ("vllm_server_port", 70000, ["70000", "65535"]),
        ("vllm_tensor_parallel_size", 0, ["got 0", ">= 1"]),
        ("vllm_tensor_parallel_size", 1.5, ["1.5", "whole number"]),
        ("vllm_tensor_parallel_size", True, ["true", "whole number"]),  # which is no number here
        ("vllm_gpu_memory_utilization", 30, ["30", "0 to 1"]),
        ("vllm_importance_sampling_clip_max", "3", ["'3'", "a number", "null"]),
        ("ddp_backend", "nccl2", ["nccl2", "gloo", "null"]),
        ("pad_to_multiple_of", "8x", ["8x", "auto", ">= 1"]),
        ("generation_kwargs", ["a"], ["['a']", "mapping"]),
        ("deepspeed", 3, ["got 3", "mapping", "JSON file"]),
        ("tools", "./tools.py:search", ["list"]),
        ("tools", ["./tools.py"], ["FILE.py:NAME"]),
        ("environment_factory", {"a": "./env.py:Env"}, ["package.module:NAME"]),
    ],
)
def test_values_that_are_refused(name: str, value: Any, facts: list[str]) -> None:
    problem = str(value_problem(name, value))
    assert [fact for fact in facts if fact not in problem] == []


@pytest.mark.parametrize(
    ("args", "field"),
    [
        ({"dataloader_prefetch_factor": 2}, "dataloader_prefetch_factor"),
        ({"dataloader_persistent_workers": True}, "dataloader_persistent_workers"),
        ({"vllm_importance_sampling_clip_min": 3.0}, "vllm_importance_sampling_clip_min"),  # the other is 3 by default
        (
            {"vllm_importance_sampling_mode": "token_truncate", "vllm_importance_sampling_clip_max": None},
            "vllm_importance_sampling_clip_max",
        ),
    ],
)
def test_values_that_do_not_go_together(args: dict[str, Any], field: str) -> None:
    assert [name for name, _ in combination_problems(args)] == [field]


@pytest.mark.parametrize(
    "args",
    [
        {},
        {"dataloader_prefetch_factor": 2, "dataloader_num_workers": 1},
        {"vllm_importance_sampling_clip_min": 0.5},
        {"vllm_importance_sampling_clip_min": 4.0, "vllm_importance_sampling_clip_max": None},
        {"vllm_importance_sampling_mode": "token_truncate"},
    ],
)
def test_values_that_go_together(args: dict[str, Any]) -> None:
    assert list(combination_problems(args)) == []
