"""A name, a profile and overrides -> a resolved sweep, and what of it is written to a study and read back.

the file -> profile -> overrides -> SweepSpec, every point of which is a valid run (validation)
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from core.errors import NotFoundError, SpecError
from grpoctl.config import Library, Loaded, Revisions, canonical, load, plain, shipped_folder
from grpoctl.config.authored import FULL, Authored, check_file
from grpoctl.config.documents import read_document, read_value
from grpoctl.config.layers import Keys, Layer, Place, merge
from grpoctl.config.library import SUFFIX, Origin
from grpoctl.config.loading import read_any
from grpoctl.config.problems import refused
from grpoctl.config.resolved import block_yaml
from grpoctl.sweeps.candidates import Candidates
from grpoctl.sweeps.checks import refuse
from grpoctl.sweeps.keys import in_full
from grpoctl.sweeps.problems import sweep_error
from grpoctl.sweeps.spec import SweepSpec
from grpoctl.sweeps.validation import completed

OF_THE_FILE = ("name", "revision", "source", "title", "question", "profile", "profiles", "bases")
SPACES = {"axes", "candidates", "ladder"}  # a file with one of them is a sweep
TOTALS = ("trials", "max_hours")  # how far a study goes, not what it compares: it may be gone on with under others


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedSweep:
    """A sweep and where it came from. `profiles` are the sweep's own; those of its base can be chosen too."""

    spec: SweepSpec
    file: Path
    profiles: tuple[str, ...]
    origin: Origin


def sweep_library() -> Library:
    """The sweeps there are: the user's ./sweeps first, then the shipped ones."""
    return Library(user=Path("sweeps"), shipped=shipped_folder("sweeps"), kind="sweep")


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
    authored = read_sweep_file(file)
    layers = [authored.base, *_profile(authored, profile)]
    tree = {key: value for layer in layers for key, value in layer.tree.items()}
    documents = _bases(tree, authored, experiments or Library(), revisions)
    under = {name: _under(document, profile, authored) for name, document in documents.items()}
    base = next(iter(under.values()))
    layers.append(_override_layer(overrides))
    merged = layers[0].without(())
    for index, layer in enumerate(layers):
        full = in_full(layer, base, under)
        merged = full if index == 0 else merge(merged, full)
    merged = _without_gone(merged)
    try:
        spec = SweepSpec.model_validate({**merged.tree, "profile": profile})
    except ValidationError as error:
        raise sweep_error(error, merged) from None
    spec = completed(spec, merged, documents)
    try:
        refuse(spec, Candidates(sweep=spec, authored=documents))
    except SpecError as error:
        raise refused(error.message, ("axes", error.key or ""), merged) from None
    return LoadedSweep(spec=spec, file=file, profiles=authored.profiles, origin=_origin(file, library))


def base_of(name: str, overrides: Sequence[str], revisions: Revisions | None = None) -> Loaded:
    """The first experiment that a sweep varies, as it is written: what `--profile auto` is chosen by.

    Nothing is asked of its points, which need not be valid under `full`. Raises as `load_sweep`.
    """
    authored = read_sweep_file(sweep_library().find(name))
    tree = {**authored.base.tree, **_override_layer(overrides).tree}
    return load(next(iter(_bases(tree, authored, Library(), revisions))), revisions=revisions)


def _origin(file: Path, library: Library) -> Origin:
    return next((of for path, of in library.files().values() if path.resolve() == file.resolve()), "user")


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
    found = tuple(kind for kind, files in there.items() if name.lower() in files)
    if found or "@" in name:
        return found or ("experiment",)
    near = [kind for kind, files in there.items() if difflib.get_close_matches(name.lower(), files, n=1)]
    known["sweep" if near == ["sweep"] else "experiment"].find(name)
    return ("experiment",)


def read_sweep_file(file: Path) -> Authored:
    """A sweep's file as it is written. Raises NotFoundError, or SpecError with file and line."""
    document = read_document(file)
    for key in ("extends", "bases"):
        if key in document.tree:
            said = (
                "a sweep has no parent; allowed: profiles, or a copy" if key == "extends" else "is written by grpoctl"
            )
            raise refused(said, (key,), document)
    check_file(file, document)
    return Authored(layer=document, file=file, chain=(file,))


def _profile(authored: Authored, profile: str) -> list[Layer]:
    """The sweep's own profile of this name; none where it has none: then it must be the base's."""
    if profile == FULL or profile not in authored.profiles:
        return []
    layer = authored.profile(profile)
    assert layer is not None
    return [layer]


def _bases(
    tree: Mapping[str, Any], authored: Authored, library: Library, revisions: Revisions | None
) -> dict[str, Authored]:
    """experiment -> its document, the sweep's base first. Raises SpecError naming the sweep's key."""
    rungs = tree.get("ladder")
    asked: list[tuple[Keys, object]] = [(("experiment",), tree["experiment"])] if "experiment" in tree else []
    for index, rung in enumerate(rungs if isinstance(rungs, list) else ()):
        if isinstance(rung, Mapping) and "experiment" in rung:
            asked.append((("ladder", index, "experiment"), rung["experiment"]))
    found: dict[str, Authored] = {}
    for keys, name in asked:
        if not isinstance(name, str):
            raise refused(f"got {canonical(name)}; allowed: the name of one experiment", keys, authored.layer)
        if name not in found:
            try:
                found[name] = read_any(name, library=library, revisions=revisions)
            except NotFoundError as error:
                raise refused(str(error), keys, authored.layer) from None
    if not found:
        raise SpecError("'experiment' is missing; it names the base of every trial", file=authored.file)
    return found


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
            places[keys[:length]] = Place(said=f"in the override {text}")
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
