"""A pydantic error -> one SpecError: file, line, key, what was got, what is allowed, the nearest known key."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import ValidationError

from core.errors import SpecError
from core.spec.task import task_names
from grpoctl.specs.layers import Keys, Layer, dotted
from grpoctl.specs.nearest import hint
from grpoctl.specs.schema import Field, allowed, choices, fields, item_fields, keys_of, stage_kinds

_LONGEST = 60


def spec_error(error: ValidationError, layer: Layer) -> SpecError:
    """The first problem, an unknown key before all others, and how many more there are."""
    first: dict[Keys, SpecError] = {}  # one problem per key: a number that is no schedule fails twice
    # a misspelled key is reported as missing and as unknown; only the second says what to do
    for item in sorted(error.errors(), key=lambda item: item["type"] != "extra_forbidden"):
        keys = _keys(item, layer.tree)
        first.setdefault(keys, _one(item, keys, layer))
    chosen, *others = first.values()
    if not others:
        return chosen
    more = f" (and {len(others)} more problem{'s' if len(others) > 1 else ''})"
    return SpecError(chosen.message + more, file=chosen.file, line=chosen.line, key=chosen.key)


def _keys(item: Any, tree: Mapping[str, object]) -> Keys:
    """The key at fault: pydantic's location less the names of union members, cut where the document ends."""
    raw: list[str | int] = [key for key in item["loc"] if key != "[key]"]
    if len(raw) > 1 and raw[0] == "task" and raw[1] in task_names():
        del raw[1]  # the discriminator's value, which stands in no document
    if len(raw) > 2 and raw[0] == "stages" and raw[2] in stage_kinds():
        del raw[2]
    if item["type"] in ("union_tag_invalid", "union_tag_not_found"):
        raw.append("kind" if raw[0] == "stages" else "name")
    if item["type"] == "cross_field":
        raw.extend(key for key in item["ctx"]["key"].split(".") if key)
    node: object = tree
    for length, key in enumerate(raw):
        if isinstance(node, Mapping) and isinstance(key, str):
            node = node.get(key)
        elif isinstance(node, list) and isinstance(key, int) and key < len(node):
            node = node[key]
        else:
            return tuple(raw[:length])
    return tuple(raw)


def _one(item: Any, keys: Keys, layer: Layer) -> SpecError:
    place = layer.place(keys)
    said = f" ({place.said})" if place.said else ""
    return SpecError(_what(item, keys, layer) + said, file=place.file, line=place.line, key=dotted(keys) or None)


def _what(item: Any, keys: Keys, layer: Layer) -> str:
    kind = item["type"]
    if kind == "extra_forbidden":
        return f"unknown key; {hint(keys, layer.tree)}"
    if kind in ("cross_field", "value_error"):
        return str(item["ctx"].get("problem") or item["ctx"]["error"])
    field = _field(keys[:-1] if "[key]" in item["loc"] else keys, layer)
    if "[key]" in item["loc"]:
        return f"got the name {keys[-1]!r}; allowed: {allowed(keys_of(field))}"
    if kind in ("missing", "union_tag_not_found"):
        return f"is missing; allowed: {allowed(field)}"
    value = _value(keys, layer.tree)
    return f"{got(value)}; allowed: {allowed(field)}{_near(value, choices(field))}"


def _field(keys: Keys, layer: Layer) -> Field:
    """The key's field, or that of the nearest known key around it (an item's list, an entry's mapping)."""
    if keys == ("task", "name"):
        return Field(annotation=Literal[*task_names()])  # of all tasks, not of the one the document names
    if len(keys) == 3 and keys[0] == "stages" and keys[2] == "kind":
        return Field(annotation=Literal[*stage_kinds()])
    known = {**fields(layer.tree), **item_fields(layer.tree, keys)}
    return next(known[keys[:length]] for length in range(len(keys), 0, -1) if keys[:length] in known)


def _near(value: object, options: Sequence[str]) -> str:
    close = difflib.get_close_matches(value.lower(), options, n=1) if isinstance(value, str) else []
    return f"; did you mean {close[0]}?" if close else ""


def _value(keys: Keys, tree: object) -> object:
    for key in keys:
        if isinstance(tree, Mapping):
            tree = tree.get(str(key))
        elif isinstance(tree, list) and isinstance(key, int):
            tree = tree[key]
    return tree


def got(value: object) -> str:
    """`got the string '3'`, shortened: what a document holds, in YAML's words."""
    if isinstance(value, str):
        text = repr(value if len(value) <= _LONGEST else value[: _LONGEST - 3] + "...")
        return f"got the string {text}{'; write it without quotes' if _is_number(value) else ''}"
    if isinstance(value, Mapping):
        return "got a mapping"
    if isinstance(value, list):
        return f"got a list of {len(value)}" if value else "got an empty list"
    if value is None or isinstance(value, bool):
        return f"got {'null' if value is None else str(value).lower()}"
    text = repr(value) if not isinstance(value, int) or abs(value) < 10**40 else "an integer of more than 40 digits"
    return f"got {text}"


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
