"""Layers: one authored mapping each (a file, a profile, the overrides), and how they are put on top of one another.

Every value remembers its place (file, line, which layer), so that an error found after merging still names it.
Reading YAML is not here (documents.py), nor is what the keys mean (schema.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from core.config.methods import set_aside

Keys = tuple[str | int, ...]
TELLS_APART: dict[Keys, str] = {("task",): "name", ("policy",): "kind"}  # part -> the key that says which one it is
STAGES: Keys = ("stages",)


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where a value was written. `said` names a layer other than a file's own keys: `in profile tiny`."""

    file: Path | None = None
    line: int | None = None
    origin: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """A tree of mappings, lists and scalars, and the place of every node (the root is `()`). Never mutated."""

    tree: Mapping[str, object]
    places: Mapping[Keys, Place]

    def place(self, keys: Keys) -> Place:
        """The place of the value at `keys`, or of the nearest mapping around it that has one."""
        for length in range(len(keys), -1, -1):
            if (place := self.places.get(keys[:length])) is not None:
                return place
        return Place()

    def below(self, keys: Keys, origin: str) -> Layer:
        """The mapping at `keys` as a layer of its own, every place of it marked `said`."""
        tree: object = self.tree
        for key in keys:
            assert isinstance(tree, Mapping)
            assert isinstance(key, str)
            tree = tree[key]
        assert isinstance(tree, Mapping)
        places = {
            path[len(keys) :]: Place(file=place.file, line=place.line, origin=origin)
            for path, place in self.places.items()
            if path[: len(keys)] == keys
        }
        return Layer(tree=tree, places=places)

    def without(self, names: Collection[str]) -> Layer:
        """The layer less these top-level keys."""
        return Layer(
            tree={name: value for name, value in self.tree.items() if name not in names},
            places={path: place for path, place in self.places.items() if not path or path[0] not in names},
        )


def merge(base: Layer, over: Layer) -> Layer:
    """`over` on top of `base`: mappings are merged key by key, everything else (lists, scalars, null) is replaced.

    A layer that names another task starts the task's mapping anew: the old task's keys mean nothing to it. So does a
    layer that names another kind of policy or of stage; one that names a method sets aside what was said about the
    method's axes.
    """
    places = dict(base.places)
    tree = _merge(base.tree, over.tree, (), places)
    return Layer(tree=tree, places={**places, **over.places})


def _merge(
    base: Mapping[str, object], over: Mapping[str, object], at: Keys, places: dict[Keys, Place]
) -> dict[str, object]:
    """The merged mapping; removes from `places` what was replaced."""
    merged = dict(base)
    for name, value in over.items():
        below = merged.get(name)
        path = (*at, name)
        if isinstance(value, Mapping) and isinstance(below, Mapping) and not _starts_anew(path, below, value):
            kept = _kept(path, below, value)
            if kept is not below:
                _forget(places, [old for old in places if _inside(old, path) and old[len(path)] not in kept])
            merged[name] = _merge(kept, value, path, places)
        else:
            merged[name] = value
            parts = [old for old in places if _inside(old, path)] if isinstance(below, Mapping | list) else []
            _forget(places, [path, *parts])
    if _outside_profile(at) == STAGES and all(name in over for name in base):
        return {name: merged[name] for name in over}  # who names every stage says their order
    return merged


def _forget(places: dict[Keys, Place], gone: Iterable[Keys]) -> None:
    for path in gone:
        places.pop(path, None)


def _starts_anew(path: Keys, base: Mapping[str, object], over: Mapping[str, object]) -> bool:
    """True where `over` names another task, or another kind of policy or of stage, than `base`."""
    at = _outside_profile(path)
    if (key := TELLS_APART.get(at)) is not None:
        return key in over and over[key] != base.get(key)
    return _is_stage(at) and "kind" in over and over["kind"] != base.get("kind", "grpo")


def _kept(path: Keys, base: Mapping[str, object], over: Mapping[str, object]) -> Mapping[str, object]:
    """What stays of `base` under `over`: of a stage whose method is named anew, what is no axis of methods."""
    return set_aside(base, over["method"]) if _is_stage(_outside_profile(path)) and "method" in over else base


def _is_stage(path: Keys) -> bool:
    return len(path) == 2 and path[0] == "stages"


def _outside_profile(path: Keys) -> Keys:
    """The path as if it stood outside a profile: profiles.NAME.task is a task too."""
    return path[2:] if path[:1] == ("profiles",) else path


def _inside(path: Keys, parent: Keys) -> bool:
    return len(path) > len(parent) and path[: len(parent)] == parent


_SCHEDULE = {"start", "end", "steps"}  # what every resolved one has, also one recorded by an earlier version


def leaves(tree: Mapping[str, object], at: str = "") -> dict[str, object]:
    """Dotted key -> value of everything that is not a mapping; lists are values, empty mappings have none.

    A resolved schedule is one value: that it moves is one setting, not six.
    """
    flat: dict[str, object] = {}
    for name, value in tree.items():
        dotted = f"{at}.{name}" if at else str(name)
        if isinstance(value, Mapping) and not set(value) >= _SCHEDULE:
            flat.update(leaves(value, dotted))
        else:
            flat[dotted] = value
    return flat


def dotted(keys: Keys) -> str:
    """`("stages", "grpo", "beta")` -> `stages.grpo.beta`; a list's index in brackets."""
    text = ""
    for key in keys:
        text += f"[{key}]" if isinstance(key, int) else (f".{key}" if text else key)
    return text
