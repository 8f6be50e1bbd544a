"""`key=value` texts -> one Layer. A key may be shortened to any ending that only one key of the spec has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_origin

from core.errors import SpecError
from grpoctl.specs.authored import OF_THE_FILE
from grpoctl.specs.documents import read_value
from grpoctl.specs.layers import Keys, Layer, Place, dotted
from grpoctl.specs.nearest import hint
from grpoctl.specs.paths import anchored
from grpoctl.specs.schema import Field, fields, has_parts

_NAMED = 4  # of the keys that an ending may mean


def override_layer(overrides: Sequence[str], tree: Mapping[str, object]) -> Layer:
    """The layer that the overrides of a document `tree` make, in any order.

    Raises SpecError for a text that is no key=value, an unknown or ambiguous key, and a key set twice.
    """
    pairs = [_pair(text) for text in overrides]
    task = [{"name": value} for key, value, _ in pairs if key == "task.name"]
    known = fields({**tree, "task": task[-1]} if task else tree)  # `digits=2 task.name=arithmetic` is fine
    layer: dict[str, Any] = {}
    places: dict[Keys, Place] = {(): Place(said="in the overrides")}
    taken: dict[Keys, str] = {}
    for key, value, text in pairs:
        path = _path(key, known, {**tree, "task": task[-1]} if task else tree)
        for other, before in taken.items():
            if other[: len(path)] == path[: len(other)]:
                raise SpecError(f"set twice, by {before} and by {text}", key=dotted(path))
        taken[path] = text
        node = layer
        for name in path[:-1]:
            node = node.setdefault(str(name), {})
        node[str(path[-1])] = value
        for length in range(1, len(path) + 1):
            places[path[:length]] = Place(said=f"in the override {text}")
    if isinstance(stages := tree.get("stages"), Mapping) and isinstance(layer.get("stages"), Mapping):
        layer["stages"] = {name: layer["stages"][name] for name in stages if name in layer["stages"]}  # no new order
    return anchored(Layer(tree=layer, places=places))


def _pair(text: str) -> tuple[str, object, str]:
    """(key, value, the text itself)."""
    key, equals, value = text.partition("=")
    key = key.strip()
    if not equals or not key:
        raise SpecError(f"got {text!r}, expected key=value, e.g. learning_rate=1e-5")
    try:
        return key, read_value(value), text
    except SpecError as error:
        raise SpecError(f"{error.message} (in the override {text})", key=key) from None


def _path(key: str, known: Mapping[Keys, Field], tree: Mapping[str, object]) -> Keys:
    """The key that `key` means: itself, the only one that ends in it, or an entry of a free mapping (domains.math)."""
    parts: Keys = tuple(key.split("."))
    if parts[0] in OF_THE_FILE:
        others = [dotted(path) for path in known if len(path) > 1 and path[-len(parts) :] == parts]
        instead = f"; did you mean {others[0]}?" if others else ""
        raise SpecError(f"belongs to the file and is not overridden{instead}", key=key)
    for ending, entry in ((parts, ()), (parts[:-1], parts[-1:])):
        found = [ending] if ending in known else [path for path in known if ending and path[-len(ending) :] == ending]
        if entry:
            found = [path for path in found if _is_free(known[path])]
        if len(found) > 1:
            raise SpecError(f"ambiguous; write one of {_some(found)}", key=key)
        if found:
            return (*found[0], *entry)
    raise SpecError(f"unknown key; {hint(parts, tree)}", key=key)


def _some(found: Sequence[Keys]) -> str:
    """The keys, the shortest first, and of many the first few."""
    nearest = [dotted(path) for path in sorted(found, key=len)]
    more = len(nearest) - _NAMED
    return ", ".join(nearest) if more <= 1 else f"{', '.join(nearest[:_NAMED])} ({more} more)"


def _is_free(field: Field) -> bool:
    """Whether a key holds a mapping whose own keys are free: values by name (domains, recorded), not parts (stages)."""
    return get_origin(field.annotation) is dict and not has_parts(field)
