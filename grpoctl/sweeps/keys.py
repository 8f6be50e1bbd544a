"""The keys a sweep sets on its base experiment, each in full: `learning_rate` -> `stages.grpo.learning_rate`.

Done to every layer of a sweep before they are merged, so that a profile's `lr` is the file's. Not here: whether a value
is allowed (validation).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.errors import SpecError
from grpoctl.config.layers import Keys, Layer, Place, dotted, merge
from grpoctl.config.overrides import override_layer
from grpoctl.config.problems import refused
from grpoctl.sweeps.candidates import texts

Bases = Mapping[str, Layer]  # experiment -> its document under the sweep's profile


def in_full(layer: Layer, base: Layer, bases: Bases) -> Layer:
    """A sweep's layer with every key of a run in full. Raises SpecError naming file, line and key."""
    reader = _Reader(layer)
    settings = reader.flat(layer.tree.get("settings"), ("settings",), base)
    under = base
    if isinstance(settings, Mapping) and settings:
        under = merge(base, override_layer(texts(settings), base.tree))
    if "settings" in layer.tree:
        reader.tree["settings"] = settings
    if isinstance(axes := layer.tree.get("axes"), Mapping):
        reader.tree["axes"] = reader.axes(axes, under)
    if isinstance(candidates := layer.tree.get("candidates"), Mapping):
        reader.tree["candidates"] = {
            name: reader.flat(below, ("candidates", name), under) if below is not None else None
            for name, below in candidates.items()
        }
    if isinstance(ladder := layer.tree.get("ladder"), list):
        reader.tree["ladder"] = [reader.rung(rung, index, bases, base) for index, rung in enumerate(ladder)]
    return Layer(tree=reader.tree, places=reader.places)


class _Reader:
    """A layer on its way to full keys; gathers the places of the keys it renames."""

    def __init__(self, layer: Layer) -> None:
        self.layer, self.tree = layer, dict(layer.tree)
        self.places: dict[Keys, Place] = dict(layer.places)

    def flat(self, below: object, at: Keys, base: Layer) -> Any:
        """Nested and dotted settings as one mapping of full keys; what is no mapping is left to the models."""
        if not isinstance(below, Mapping):
            return {} if below is None else below
        found: dict[str, object] = {}
        for written, value in _leaves(below):
            key = self._full(written, (*at, *written), base)
            if key in found:
                raise refused("is set twice", (*at, *written), self.layer)
            found[key] = value
            self.places[(*at, key)] = self.layer.place((*at, *written))
        return found

    def axes(self, axes: Mapping[str, object], base: Layer) -> dict[str, object]:
        """The axes by full key, those in their conditions too."""
        found: dict[str, object] = {}
        for written, axis in axes.items():
            at = ("axes", written)
            key = self._full((written,), at, base)
            if key in found:
                raise refused(f"is set twice: {key}", at, self.layer)
            self._move(at, ("axes", key))
            found[key] = axis
            if isinstance(axis, Mapping) and isinstance(when := axis.get("when"), Mapping):
                renamed = {self._full((other,), (*at, "when", other), base): below for other, below in when.items()}
                found[key] = {**axis, "when": renamed}
        return found

    def rung(self, rung: object, index: int, bases: Bases, base: Layer) -> object:
        """A rung with its settings in full."""
        if not isinstance(rung, Mapping) or "settings" not in rung:
            return rung
        under = bases.get(str(rung.get("experiment")), base)
        return {**rung, "settings": self.flat(rung["settings"], ("ladder", index, "settings"), under)}

    def _full(self, written: Keys, at: Keys, base: Layer) -> str:
        """The one key of the base that is meant. Raises SpecError with the place of the sweep's key."""
        key = dotted(written)
        try:
            named = override_layer([f"{key}=null"], base.tree)
        except SpecError as error:
            raise refused(error.message, at, self.layer) from None
        return dotted(max(named.places, key=len))

    def _move(self, old: Keys, new: Keys) -> None:
        """Note the places of a renamed key and of what is below it."""
        for path in [path for path in self.places if path[: len(old)] == old]:
            self.places[(*new, *path[len(old) :])] = self.places[path]


def _leaves(tree: Mapping[str, object], at: Keys = ()) -> list[tuple[Keys, object]]:
    """(keys, value) of everything that is not a mapping, or is an empty one."""
    found: list[tuple[Keys, object]] = []
    for name, value in tree.items():
        if isinstance(value, Mapping) and value:
            found += _leaves(value, (*at, name))
        else:
            found.append(((*at, name), value))
    return found
