"""docs/algorithms.md has a row for every name that a stage accepts, and none for what it does not."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from core.config import GrpoStage, Part, RceStage, Schedule, SftStage
from core.config.methods import METHODS

DOCUMENT = (Path(__file__).parents[3] / "docs" / "algorithms.md").read_text(encoding="utf-8")
NAME = re.compile(r"[a-z_0-9]+(\.[a-z_0-9]+)*(: [a-z0-9_/]+)?")


def accepted(model: type[Part], at: str = "") -> set[str]:
    """`key: value` for each value of a key that is chosen from a list, else `key`; keys of parts are dotted."""
    found: set[str] = set()
    for name, info in model.model_fields.items():
        key = f"{at}{name}"
        parts, values = _inside(info.annotation)
        if values:
            found |= {f"{key}: {value}" for value in values}
        elif parts and parts != [Schedule]:
            found |= {name for part in parts for name in accepted(part, f"{key}.")}
        else:
            found.add(key)
    return found


def _inside(annotation: Any) -> tuple[list[type[Part]], list[object]]:
    """The models and the literal values inside an annotation."""
    if isinstance(annotation, type) and issubclass(annotation, Part):
        return [annotation], []
    if get_origin(annotation) is Literal:
        return [], list(get_args(annotation))
    if get_origin(annotation) not in (Union, UnionType, Annotated):
        return [], []
    inside = [_inside(part) for part in get_args(annotation) if part is not NoneType]
    return [part for parts, _ in inside for part in parts], [value for _, values in inside for value in values]


def rows() -> Counter[str]:
    """The names in the first cells of the tables of names: a cell may have several, each in backticks."""
    names = DOCUMENT.split("\n## Where this differs", 1)[0]
    cells = re.findall(r"^\| (`[^|]*) \|", names, flags=re.MULTILINE)
    return Counter(name for cell in cells for name in re.findall(r"`([^`]*)`", cell))


def test_every_name_has_one_row_and_no_other_has_any() -> None:
    names = accepted(GrpoStage) | accepted(SftStage) | accepted(RceStage)
    names |= {f"schedule.{name}" for name in accepted(Schedule)}
    assert {f"method: {method}" for method in METHODS} <= names
    found = rows()
    missing, unknown = sorted(names - set(found)), sorted(set(found) - names)
    assert not missing, f"docs/algorithms.md has no row for {missing}"
    assert not unknown, f"docs/algorithms.md has rows for {unknown}, which no stage accepts"
    assert [name for name, count in found.items() if count > 1] == []
    assert all(NAME.fullmatch(name) for name in found)
