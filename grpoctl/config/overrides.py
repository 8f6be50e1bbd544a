"""`key=value` texts -> one Layer. A key may be shortened to any ending that only one key of the spec has.

An ending switches nothing on: where the part around its key is null, the part is to be named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from core.config.methods import filled
from core.errors import SpecError
from grpoctl.config.authored import OF_THE_FILE, anchored
from grpoctl.config.documents import read_value
from grpoctl.config.layers import Keys, Layer, Place, dotted, merge
from grpoctl.config.problems import ALIASES, hint, nearest
from grpoctl.config.schema import Field, fields, has_free_keys

_NAMED = 4  # of the keys that an ending may mean


def override_layer(overrides: Sequence[str], tree: Mapping[str, object]) -> Layer:
    """The layer that the overrides of a document `tree` make, in any order.

    Raises SpecError for a text that is no key=value, an unknown or ambiguous key, a key set twice, and an ending whose
    key is of a part that is null.
    """
    pairs = [_pair(text) for text in overrides]
    parts = {"task.name": "task", "policy.kind": "policy"}  # `digits=2 task.name=arithmetic` is fine
    named = {parts[key]: {key.rpartition(".")[2]: value} for key, value, _ in pairs if key in parts}
    known = fields({**tree, **named})
    paths = [_path(key, known, {**tree, **named}) for key, _, _ in pairs]
    taken: dict[Keys, str] = {}
    for path, (_, _, text) in zip(paths, pairs, strict=True):
        for other, before in taken.items():
            if other[: len(path)] == path[: len(other)]:
                raise SpecError(f"set twice, by {before} and by {text}", key=dotted(path))
        taken[path] = text
    written = {path: (value, text) for path, (_, value, text) in zip(paths, pairs, strict=True)}
    bare = [(path, key) for path, (key, _, _) in zip(paths, pairs, strict=True) if _null_part(path, key, tree, known)]
    others = _layer({path: value for path, value in written.items() if path not in dict(bare)})
    for path, key in bare:  # `method=dapo max_attempts=4` is fine: the method switches dynamic sampling on
        _check_switched_on(path, key, merge(Layer(tree=tree, places={}), others).tree, known)
    layer = _layer(written)
    changed = dict(layer.tree)
    if isinstance(stages := tree.get("stages"), Mapping) and isinstance(set_here := changed.get("stages"), Mapping):
        changed["stages"] = {name: set_here[name] for name in stages if name in set_here}  # no new order
    return anchored(Layer(tree=changed, places=layer.places))


def _layer(written: Mapping[Keys, tuple[object, str]]) -> Layer:
    """The layer of these values by key, each with the override's own text."""
    tree: dict[str, Any] = {}
    places: dict[Keys, Place] = {(): Place(origin="in the overrides")}
    for path, (value, text) in written.items():
        node = tree
        for name in path[:-1]:
            node = node.setdefault(str(name), {})
        node[str(path[-1])] = value
        for length in range(1, len(path) + 1):
            places[path[:length]] = Place(origin=f"in the override {text}")
    return Layer(tree=tree, places=places)


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
        matches = [ending] if ending in known else [path for path in known if ending and path[-len(ending) :] == ending]
        if entry:
            matches = [path for path in matches if has_free_keys(known[path])]
        if len(matches) > 1:
            raise SpecError(f"ambiguous; write one of {_some(matches)}", key=key)
        if matches:
            return (*matches[0], *entry)
    raise SpecError(f"unknown key; {hint(parts, tree)}", key=key)


def _null_part(path: Keys, key: str, tree: Mapping[str, object], known: Mapping[Keys, Field]) -> Keys | None:
    """The part around `path` that is null in the document and that the ending `key` does not name; None for none."""
    node: object = tree
    for length, name in enumerate(path[: len(path) - len(key.split("."))], start=1):
        at = path[:length]
        there = isinstance(node, Mapping) and name in node
        node = node[name] if isinstance(node, Mapping) and there else None
        if node is None and (there or (at in known and known[at].default is None)):
            return at
        if at[:-1] == ("stages",) and isinstance(node, Mapping):
            node = filled(node)  # a method can switch a part on
    return None


def _check_switched_on(path: Keys, key: str, tree: Mapping[str, object], known: Mapping[Keys, Field]) -> None:
    """Refuses an ending whose key is of a part that is null, with the keys that may be meant."""
    part = _null_part(path, key, tree, known)
    if part is None:
        return
    name = key.rpartition(".")[2]
    acting = {other: field for other, field in known.items() if _null_part(other, "", tree, known) is None}
    elsewhere = nearest((*path[:2], name), acting) if name in ALIASES else None
    alike = [other for other in acting if other not in (path, elsewhere) and name in str(other[-1]).split("_")]
    others = [f"{dotted(elsewhere)} ({name} in other trainers)"] if elsewhere else []
    others += [_some(alike)] if alike else []
    instead = f", or did you mean {', '.join(others)}?" if others else ""
    raise SpecError(f"{dotted(part)} is null; write {dotted(path)} to switch it on{instead}", key=key)


def _some(keys: Sequence[Keys]) -> str:
    """The keys, the shortest first, and of many the first few."""
    nearest = [dotted(path) for path in sorted(keys, key=len)]
    more = len(nearest) - _NAMED
    return ", ".join(nearest) if more <= 1 else f"{', '.join(nearest[:_NAMED])} ({more} more)"
