"""Every setting is read by someone: a setting that nothing reads is a promise that nothing keeps.

What is seen: an attribute of the setting's name, read somewhere outside the folders that only carry specs around. A
name that other records have too (`name`, `steps`) can hide a forgotten setting; a name of its own cannot.
"""

from __future__ import annotations

import ast
import typing
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from pydantic import BaseModel

from core.config import RestorationTaskSpec, RunSpec
from tests.architecture.source import modules
from tests.fakes import run_spec

CARRIERS = ("core.config", "grpoctl.config", "core.health.before")  # the last only foretells what others do
# Told apart by their type before anyone reads them.
BY_TYPE = {"stages.*.kind"}
# Every value but null is refused: the key is there so that the refusal can say why.
REFUSED = {"task.w_lpips"}
# The spec itself makes another number of these: that one is what others read.
OF_STAGES = {"stages.*.epochs": "max_steps", "stages.*.lr_scheduler_steps": "lr_horizon"}
OF_TASKS = {"task.w_psnr": "weights", "task.w_ssim": "weights"}
MADE_INTO = OF_STAGES | OF_TASKS


def parts(annotation: Any) -> Iterator[type[BaseModel]]:
    """The parts of a spec that a type mentions, inside unions, mappings and annotations."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in typing.get_args(annotation):
        yield from parts(inner)


def leaves(part: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Dotted keys of every setting that holds a value; `*` stands for a stage's name."""
    for name, field in part.model_fields.items():
        inner = list(parts(field.annotation))
        star = ".*" if typing.get_origin(field.annotation) is dict else ""
        for one in inner:
            yield from leaves(one, f"{prefix}{name}{star}.")
        if not inner:
            yield f"{prefix}{name}"


LEAVES = sorted(set(leaves(RunSpec)))


@pytest.mark.parametrize("leaf", OF_STAGES)
def test_what_the_spec_makes_of_a_setting_moves_with_it(leaf: str) -> None:
    stage = {"prompts_per_step": 1, "num_generations": 2, "learning_rate": 0.1, "epochs": 5, "lr_scheduler_steps": 7}
    made = {
        getattr(run_spec(stages={"a": {**stage, leaf.rpartition(".")[2]: value}}).stages["a"], MADE_INTO[leaf])
        for value in (2, 3)
    }
    assert len(made) == 2


@pytest.mark.parametrize("leaf", OF_TASKS)
def test_what_a_task_makes_of_a_setting_moves_with_it(leaf: str) -> None:
    name = leaf.rpartition(".")[2]
    made = {getattr(RestorationTaskSpec(name="restoration", **{name: x}), OF_TASKS[leaf]) for x in (0.1, 0.2)}
    assert len(made) == 2


@cache
def attributes_read() -> set[str]:
    return {
        node.attr
        for module in modules().values()
        if not module.within(*CARRIERS)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    }


def test_all_of_the_spec_is_seen() -> None:
    known = {"seed", "model.lora.r", "task.digits", "task.operator_cost", "stages.*.advantage.eps",
             "stages.*.temperature.start", "early_stopping.patience", "guards.max_kl", "recorded"}  # fmt: skip
    assert known <= set(LEAVES)
    assert len(LEAVES) > 60
    assert set(LEAVES) >= BY_TYPE


@pytest.mark.parametrize("leaf", [leaf for leaf in LEAVES if leaf not in BY_TYPE | REFUSED])
def test_somebody_reads(leaf: str) -> None:
    read = MADE_INTO.get(leaf, leaf.rpartition(".")[2])
    assert read in attributes_read(), f"nothing outside {' and '.join(CARRIERS)} reads {leaf}"
