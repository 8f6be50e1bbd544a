"""A name, a profile and overrides -> a resolved sweep, and what of it is written to a study and read back.

the file -> profile -> overrides -> SweepSpec, every point of which is a valid run (validation). Keys of the base are
put in full (`learning_rate` -> `stages.grpo.learning_rate`) in every layer before the layers are merged, so that a
profile's `lr` is the file's.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from core.errors import NotFoundError, SpecError
from grpoctl.config import Library, Loaded, Revisions, canonical, load, plain, sweep_library
from grpoctl.config.authored import FULL, Authored, check_file
from grpoctl.config.documents import read_document, read_value
from grpoctl.config.layers import Keys, Layer, Place, dotted, merge
from grpoctl.config.library import SUFFIX, Origin
from grpoctl.config.loading import read_any
from grpoctl.config.overrides import override_layer
from grpoctl.config.problems import refused
from grpoctl.config.resolved import block_yaml
from grpoctl.sweeps.candidates import texts
from grpoctl.sweeps.problems import sweep_error, with_near_key
from grpoctl.sweeps.spec import SweepSpec
from grpoctl.sweeps.validation import validated

OF_THE_FILE = ("name", "revision", "source", "title", "question", "profile", "profiles", "bases")
SPACES = {"axes", "candidates", "ladder"}  # a file with one of them is a sweep
TOTALS = ("trials", "max_hours")  # how far a study goes, not what it compares: it may be gone on with under others

Bases = Mapping[str, Layer]  # experiment -> its document under the sweep's profile


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedSweep:
    """A sweep and where it came from. `profiles` are the sweep's own; those of its base can be chosen too."""

    spec: SweepSpec
    file: Path
    profiles: tuple[str, ...]
    origin: Origin


def load_sweep(
    name_or_path: str | Path,
    *,
    profile: str = FULL,
    overrides: Sequence[str] = (),
    library: Library | None = None,
    experiments: Library | None = None,
    revisions: Revisions | None = None,
) -> LoadedSweep:
    """The resolved sweep of a name or a path that ends in .yaml; `library` has sweeps, `experiments` their bases.

    An override is a key of the sweep (`trials=6`, `budget.completions=256`), else a setting of its base.
    Raises NotFoundError where there is no such sweep, else SpecError with file, line and key.
    """
    library = library or sweep_library()
    file = library.find(str(name_or_path))
    origins = (origin for path, origin in library.files().values() if path.resolve() == file.resolve())
    origin: Origin = next(origins, "user")
    authored = read_sweep_file(file)
    layers = [authored.base]
    if profile != FULL and profile in authored.profiles:  # else it must be the base's
        scaled = authored.profile(profile)
        assert scaled is not None
        layers.append(scaled)
    layers.append(_override_layer(overrides))
    documents = _bases(reduce(merge, layers), file, experiments or Library(), revisions)
    under = {name: _under(document, profile, authored) for name, document in documents.items()}
    base = next(iter(under.values()))
    merged = layers[0].without(())
    for index, layer in enumerate(layers):
        full = _full_keys(layer, base, under)
        merged = full if index == 0 else merge(merged, full)
    merged = _without_gone(merged)
    try:
        spec = SweepSpec.model_validate({**merged.tree, "profile": profile})
    except ValidationError as error:
        raise sweep_error(error, merged) from None
    return LoadedSweep(spec=validated(spec, merged, documents), file=file, profiles=authored.profiles, origin=origin)


def base_of(name: str, overrides: Sequence[str], revisions: Revisions | None = None) -> Loaded:
    """The first experiment that a sweep varies, as it is written: what `--profile auto` is chosen by.

    Nothing is asked of its points, which need not be valid under `full`. Raises as `load_sweep`.
    """
    file = sweep_library().find(name)
    written = merge(read_sweep_file(file).base, _override_layer(overrides))
    return load(next(iter(_bases(written, file, Library(), revisions))), revisions=revisions)


def kinds_of(name: str, *, experiments: Library | None = None, sweeps: Library | None = None) -> tuple[str, ...]:
    """What a name or path means: `experiment`, `sweep` or both. Raises NotFoundError where it means nothing."""
    known = {"experiment": experiments or Library(), "sweep": sweeps or sweep_library()}
    if name.lower().endswith(SUFFIX) or "/" in name:
        path = known["experiment"].find(name)
        try:
            return ("sweep",) if SPACES & set(read_document(path).tree) else ("experiment",)
        except SpecError:  # whoever loads it says what is wrong
            return ("sweep",) if path.resolve().parent.name == "sweeps" else ("experiment",)
    there = {kind: library.files() for kind, library in known.items()}
    kinds = tuple(kind for kind, files in there.items() if name.lower() in files)
    if kinds or "@" in name:
        return kinds or ("experiment",)
    near = [kind for kind, files in there.items() if difflib.get_close_matches(name.lower(), files, n=1)]
    known["sweep" if near == ["sweep"] else "experiment"].find(name)
    return ("experiment",)


def read_sweep_file(file: Path) -> Authored:
    """A sweep's file as it is written. Raises NotFoundError, or SpecError with file and line."""
    document = read_document(file)
    for key in ("extends", "bases"):
        if key in document.tree:
            no_parent = "a sweep has no parent; allowed: profiles, or a copy"
            raise refused(no_parent if key == "extends" else "is written by grpoctl", (key,), document)
    check_file(file, document)
    return Authored(layer=document, file=file, chain=(file,))


def _bases(written: Layer, file: Path, library: Library, revisions: Revisions | None) -> dict[str, Authored]:
    """experiment -> its document, the sweep's base first. Raises SpecError naming the sweep's key."""
    tree, rungs = written.tree, written.tree.get("ladder")
    named: list[tuple[Keys, object]] = [(("experiment",), tree["experiment"])] if "experiment" in tree else []
    for index, rung in enumerate(rungs if isinstance(rungs, list) else ()):
        if isinstance(rung, Mapping) and "experiment" in rung:
            named.append((("ladder", index, "experiment"), rung["experiment"]))
    documents: dict[str, Authored] = {}
    for keys, name in named:
        if not isinstance(name, str):
            raise refused(f"got {canonical(name)}; allowed: the name of one experiment", keys, written)
        if name not in documents:
            try:
                documents[name] = read_any(name, library=library, revisions=revisions)
            except NotFoundError as error:
                raise refused(str(error), keys, written) from None
    if not documents:
        raise SpecError("'experiment' is missing; it names the base of every trial", file=file)
    return documents


def _under(document: Authored, profile: str, sweep: Authored) -> Layer:
    """A base's document under the profile. Raises SpecError where neither sweep nor base has it."""
    if profile not in document.profiles:
        have = ", ".join(dict.fromkeys([*document.profiles, *sweep.profiles]))
        raise SpecError(
            f"no profile {profile!r} of {document.file.stem}; there are: {have}", file=sweep.file, key="profiles"
        )
    scaled = document.profile(profile)
    return document.base if scaled is None else merge(document.base, scaled)


def _override_layer(overrides: Sequence[str]) -> Layer:
    """The overrides as a layer: keys of the sweep as they are, all others below `settings`."""
    tree: dict[str, Any] = {}
    places: dict[Keys, Place] = {}
    for text in overrides:
        key, equals, written = text.partition("=")
        first, _, rest = key.strip().partition(".")
        if not equals or not first:
            raise SpecError(f"got {text!r}, expected key=value, e.g. trials=6")
        if first in OF_THE_FILE:
            raise SpecError("belongs to the file and is not overridden", key=key.strip())
        keys = _override_keys(first, rest)
        node = tree
        for word in keys[:-1]:
            node = node.setdefault(word, {})
        if not isinstance(node, dict) or keys[-1] in node:
            raise SpecError("is set twice in the overrides", key=key.strip())
        try:
            node[keys[-1]] = read_value(written)
        except SpecError as error:
            raise SpecError(f"{error.message} (in the override {text})", key=key.strip()) from None
        for length in range(1, len(keys) + 1):
            places[keys[:length]] = Place(origin=f"in the override {text}")
    return Layer(tree=tree, places=places)


def _override_keys(first: str, rest: str) -> tuple[str, ...]:
    if first in ("axes", "settings") and rest:
        return (first, rest)
    if first not in SweepSpec.model_fields:
        return ("settings", f"{first}.{rest}" if rest else first)
    return (first, *rest.split(".")) if rest else (first,)


def _without_gone(layer: Layer) -> Layer:
    """The sweep less the axes and candidates that a profile took away with null."""
    tree = dict(layer.tree)
    for key in ("axes", "candidates"):
        if isinstance(below := tree.get(key), Mapping):
            tree[key] = {name: value for name, value in below.items() if value is not None}
    return replace(layer, tree=tree)


def _full_keys(layer: Layer, base: Layer, bases: Bases) -> Layer:
    """A sweep's layer with every key of its base in full. Raises SpecError naming file, line and key."""
    reader = _KeyReader(layer)
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


class _KeyReader:
    """Puts the keys of a layer in full, and gathers the places of the keys it renames."""

    def __init__(self, layer: Layer) -> None:
        self.layer, self.tree = layer, dict(layer.tree)
        self.places: dict[Keys, Place] = dict(layer.places)

    def flat(self, below: object, at: Keys, base: Layer) -> Any:
        """Nested and dotted settings as one mapping of full keys; what is no mapping is left to the models."""
        if not isinstance(below, Mapping):
            return {} if below is None else below
        flat: dict[str, object] = {}
        for written, value in _leaves(below):
            key = self._full(written, (*at, *written), base)
            if key in flat:
                raise refused("is set twice", (*at, *written), self.layer)
            flat[key] = value
            self.places[(*at, key)] = self.layer.place((*at, *written))
        return flat

    def axes(self, axes: Mapping[str, object], base: Layer) -> dict[str, object]:
        """The axes by full key, those in their conditions too."""
        by_key: dict[str, object] = {}
        for written, axis in axes.items():
            at = ("axes", written)
            key = self._full((written,), at, base)
            if key in by_key:
                raise refused(f"is set twice: {key}", at, self.layer)
            for path in [path for path in self.places if path[: len(at)] == at]:
                self.places[("axes", key, *path[len(at) :])] = self.places[path]
            by_key[key] = axis
            if isinstance(axis, Mapping) and isinstance(when := axis.get("when"), Mapping):
                renamed = {self._full((other,), (*at, "when", other), base): below for other, below in when.items()}
                by_key[key] = {**axis, "when": renamed}
        return by_key

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
            on_command_line = at == ("settings", *written) and self.layer.place(at).file is None
            message = with_near_key(error.message, written) if on_command_line else error.message
            raise refused(message, at, self.layer) from None
        return dotted(max(named.places, key=len))


def _leaves(tree: Mapping[str, object], at: Keys = ()) -> list[tuple[Keys, object]]:
    """(keys, value) of everything that is not a mapping, or is an empty one."""
    leaves: list[tuple[Keys, object]] = []
    for name, value in tree.items():
        if isinstance(value, Mapping) and value:
            leaves += _leaves(value, (*at, name))
        else:
            leaves.append(((*at, name), value))
    return leaves


def dump_sweep(spec: SweepSpec) -> str:
    """The resolved sweep as YAML, every key present; `read_sweep` gives back the same."""
    return block_yaml(plain(spec))


def read_sweep(path: Path) -> SweepSpec:
    """The sweep of a file that `dump_sweep` wrote. Raises NotFoundError, or SpecError naming file, line and key."""
    document = read_document(path)
    try:
        return SweepSpec.model_validate(dict(document.tree))
    except ValidationError as error:
        raise sweep_error(error, document) from None


def sweep_sha(spec: SweepSpec) -> str:
    """sha256 (64 hex digits) of the resolved sweep, its bases' hashes included; totals and times left out.

    The order of axes and candidates counts: it says which trial is which.
    """
    tree: dict[str, Any] = {key: value for key, value in plain(spec).items() if key not in TOTALS}
    for key in ("axes", "candidates"):
        tree[key] = [[name, below] for name, below in tree[key].items()]
    return hashlib.sha256(canonical(tree).encode()).hexdigest()


def study_stem(spec: SweepSpec) -> str:
    """`advantage-study-tiny-1f3a9c2e`: a study's id is this and its number."""
    return f"{spec.name}-{spec.profile}-{sweep_sha(spec)[:8]}"
