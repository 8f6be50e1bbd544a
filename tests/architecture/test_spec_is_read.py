"""Every setting is read by someone: a setting that nothing reads is a promise that nothing keeps.

What is seen: an attribute of the setting's name, read somewhere outside the folders that only carry specs around. A
name that other records have too (`name`, `steps`) can hide a forgotten setting; a name of its own cannot.
"""

from __future__ import annotations

import ast
import typing
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from core.spec import RunSpec
from tests.architecture.source import modules

CARRIERS = ("core.spec", "grpoctl.specs")
# Told apart by their type before anyone reads them.
BY_TYPE = {"stages.*.kind"}


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


@pytest.mark.parametrize("leaf", [leaf for leaf in LEAVES if leaf not in BY_TYPE])
def test_somebody_reads(leaf: str) -> None:
    assert leaf.rpartition(".")[2] in attributes_read(), f"nothing outside {' and '.join(CARRIERS)} reads {leaf}"
