"""A pydantic error -> one SpecError: file, line, key, what was got, what is allowed, the nearest known key.

What is here: how an error of any document is explained, and the keys of a run's. A sweep's are in
grpoctl.sweeps.problems.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

from pydantic import ValidationError

from core.config.task import task_names
from core.errors import SpecError
from grpoctl.config.layers import Keys, Layer, dotted
from grpoctl.config.nearest import hint
from grpoctl.config.schema import Field, allowed, choices, fields, item_fields, keys_of, stage_kinds

Tree = Mapping[str, object]

_LONGEST = 60


class Grammar(Protocol):
    """What a kind of document may hold, in words."""

    def location(self, item: Any, tree: Tree) -> list[str | int]:
        """The keys of pydantic's error, without the names of union members that stand in no document."""
        ...

    def knows(self, keys: Keys, tree: Tree) -> bool:
        """True when the document may have this key, whether it has it or not."""
        ...

    def hint(self, keys: Keys, tree: Tree) -> str:
        """What an unknown key was probably meant to be, or what is known at its place."""
        ...

    def allowed(self, keys: Keys, tree: Tree) -> str:
        """What a key may hold."""
        ...

    def allowed_name(self, keys: Keys, tree: Tree) -> str:
        """What a key may be called where the user names it."""
        ...

    def choices(self, keys: Keys, tree: Tree) -> Sequence[str]:
        """The texts that a key is chosen from; none where it is not such a key."""
        ...


def explain(error: ValidationError, layer: Layer, grammar: Grammar) -> SpecError:
    """The first problem, an unknown key before all others, and how many more there are."""
    first: dict[Keys, SpecError] = {}  # one problem per key: a number that is no schedule fails twice
    # a misspelled key is reported as missing and as unknown; only the second says what to do
    for item in sorted(error.errors(), key=lambda item: item["type"] != "extra_forbidden"):
        keys = _keys(grammar.location(item, layer.tree), layer.tree, grammar)
        first.setdefault(keys, refused(_what(item, keys, layer.tree, grammar), keys, layer))
    chosen, *others = first.values()
    if not others:
        return chosen
    more = f" (and {len(others)} more problem{'s' if len(others) > 1 else ''})"
    return SpecError(chosen.message + more, file=chosen.file, line=chosen.line, key=chosen.key)


def refused(message: str, keys: Keys, layer: Layer) -> SpecError:
    """The error about the value at `keys`, with its place."""
    place = layer.place(keys)
    said = f" ({place.said})" if place.said else ""
    return SpecError(message + said, file=place.file, line=place.line, key=dotted(keys) or None)


def _keys(location: Sequence[str | int], tree: Tree, grammar: Grammar) -> Keys:
    """The key at fault: the location, cut where the document ends. A word that nobody knows is a union member's."""
    node: object = tree
    for length, key in enumerate(location):
        known = length == len(location) - 1 or grammar.knows(tuple(location[: length + 1]), tree)
        if isinstance(node, Mapping) and isinstance(key, str) and (key in node or known):
            node = node.get(key)
        elif isinstance(node, (list, tuple)) and isinstance(key, int) and key < len(node):
            node = node[key]
        else:
            return tuple(location[:length])
    return tuple(location)


def _what(item: Any, keys: Keys, tree: Tree, grammar: Grammar) -> str:
    kind = item["type"]
    if kind == "extra_forbidden":
        return f"unknown key; {grammar.hint(keys, tree)}"
    if kind in ("cross_field", "value_error"):
        return str(item["ctx"].get("problem") or item["ctx"]["error"])
    if "[key]" in item["loc"]:
        return f"got the name {keys[-1]!r}; allowed: {grammar.allowed_name(keys, tree)}"
    if kind in ("missing", "union_tag_not_found"):
        return f"is missing; allowed: {grammar.allowed(keys, tree)}"
    value: object = tree
    for key in keys:
        if isinstance(value, Mapping):
            value = value.get(str(key))
        elif isinstance(value, (list, tuple)) and isinstance(key, int):
            value = value[key]
    options = grammar.choices(keys, tree)
    close = difflib.get_close_matches(value.lower(), options, n=1) if isinstance(value, str) else []
    return f"{got(value)}; allowed: {grammar.allowed(keys, tree)}{f'; did you mean {close[0]}?' if close else ''}"


class RunGrammar:
    """The keys of a run's spec, read off its models."""

    def location(self, item: Any, tree: Tree) -> list[str | int]:
        """Pydantic's location less the discriminators' values; the key that a check of several names."""
        raw: list[str | int] = [key for key in item["loc"] if key != "[key]"]
        if len(raw) > 1 and raw[0] == "task" and raw[1] in task_names():
            del raw[1]
        if len(raw) > 2 and raw[0] == "stages" and raw[2] in stage_kinds():
            del raw[2]
        if item["type"] in ("union_tag_invalid", "union_tag_not_found"):
            raw.append("kind" if raw[0] == "stages" else "name")
        if item["type"] == "cross_field":
            raw.extend(key for key in item["ctx"]["key"].split(".") if key)
        return raw

    def knows(self, keys: Keys, tree: Tree) -> bool:
        """True for a key of the spec, or of an item of one of its lists."""
        return keys in fields(tree) or keys in item_fields(tree, keys)

    def hint(self, keys: Keys, tree: Tree) -> str:
        """By its place, its spelling, or its name elsewhere."""
        return hint(keys, tree)

    def allowed(self, keys: Keys, tree: Tree) -> str:
        """As the models have it."""
        return allowed(self._field(keys, tree))

    def allowed_name(self, keys: Keys, tree: Tree) -> str:
        """As the mapping around it has it."""
        return allowed(keys_of(self._field(keys[:-1], tree)))

    def choices(self, keys: Keys, tree: Tree) -> Sequence[str]:
        """The values of its Literal."""
        return choices(self._field(keys, tree))

    def _field(self, keys: Keys, tree: Tree) -> Field:
        """The key's field, or that of the nearest known key around it (an item's list, an entry's mapping)."""
        if keys == ("task", "name"):
            return Field(annotation=Literal[*task_names()])  # of all tasks, not of the one the document names
        if len(keys) == 3 and keys[0] == "stages" and keys[2] == "kind":
            return Field(annotation=Literal[*stage_kinds()])
        known = {**fields(tree), **item_fields(tree, keys)}
        return next(known[keys[:length]] for length in range(len(keys), 0, -1) if keys[:length] in known)


def spec_error(error: ValidationError, layer: Layer) -> SpecError:
    """What is wrong with a run's document."""
    return explain(error, layer, RunGrammar())


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
