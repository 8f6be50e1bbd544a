"""A name, a profile, overrides and a seed -> a validated RunSpec, and what was changed on the way; and the experiments
there are.

the file and its parents (authored.py) -> profile -> overrides -> seed -> RunSpec
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from core.config import RunSpec
from core.errors import NotFoundError, SpecError, UserError
from grpoctl.config.authored import FULL, Authored, read_authored
from grpoctl.config.identity import Revisions
from grpoctl.config.layers import Layer, Place, leaves, merge
from grpoctl.config.library import Library, Origin
from grpoctl.config.overrides import override_layer
from grpoctl.config.problems import spec_error
from grpoctl.config.resolved import plain


class Change(NamedTuple):
    """A setting before and after profile and overrides; None also where there is no such setting on that side."""

    base: object
    value: object


@dataclass(frozen=True, kw_only=True, slots=True)
class Loaded:
    """A spec and where it came from."""

    spec: RunSpec
    authored: Mapping[str, object]  # the merged document before profile and overrides, with all its profiles
    file: Path
    chain: tuple[Path, ...]  # the file and its parents, upwards
    base: RunSpec  # the spec as it is written, before profile and overrides
    profiles: tuple[str, ...]
    files: Authored  # as they were read

    @property
    def applied(self) -> dict[str, Change]:
        """Dotted key -> what profile and overrides changed, in the order of the spec, the seed left out."""
        before, after = leaves(plain(self.base)), leaves(plain(self.spec))
        keys = [key for key in {**after, **before} if key not in ("profile", "seed")]
        changes = {key: Change(before.get(key), after.get(key)) for key in keys}
        return {key: change for key, change in changes.items() if change.base != change.value}

    @property
    def restated(self) -> dict[str, object]:
        """What the file sets as its parents have it, less what a profile or an override has changed."""
        now = leaves(plain(self.spec))
        return {key: value for key, value in self.files.restated.items() if now.get(key) == value}


def load(
    name_or_path: str | Path,
    *,
    profile: str = FULL,
    overrides: Sequence[str] = (),
    seed: int | None = None,
    library: Library | None = None,
    revisions: Revisions | None = None,
) -> Loaded:
    """The resolved spec of an experiment's name, a path that ends in .yaml, or a recorded `name@revision`.

    Raises NotFoundError where there is no such experiment, else SpecError with file, line and key.
    """
    authored = read_any(name_or_path, library=library or Library(), revisions=revisions)
    return resolve(authored, profile=profile, overrides=overrides, seed=seed)


def resolve(
    authored: Authored, *, profile: str = FULL, overrides: Sequence[str] = (), seed: int | None = None
) -> Loaded:
    """The resolved spec of a document that has been read already. Raises SpecError with file, line and key."""
    base = _validated(authored.base, FULL)  # what a spec states must stand on its own, before anything scales it
    layer = authored.base
    if (scaled := authored.profile(profile)) is not None:
        layer = merge(layer, scaled)
    if overrides:
        layer = merge(layer, override_layer(overrides, layer.tree))
    if seed is not None:
        layer = merge(layer, _seed_layer(seed, overrides))
    spec = _validated(layer, profile)
    return Loaded(
        spec=spec, authored=authored.layer.tree, file=authored.file, chain=authored.chain,
        base=base, profiles=authored.profiles, files=authored,
    )  # fmt: skip


def read_any(name_or_path: str | Path, *, library: Library, revisions: Revisions | None = None) -> Authored:
    """The authored document of a name, a path or a recorded `name@revision`."""
    name = str(name_or_path)
    if "@" not in name or name.lower().endswith(".yaml"):
        return read_authored(library.find(name), library)
    if revisions is None:
        raise NotFoundError(f"{name}: nothing has been recorded here; the current file is {name.partition('@')[0]!r}")
    file, document = revisions.document(name)
    return Authored(layer=Layer(tree=document, places={(): Place(file=file)}), file=file, chain=(file,))


def _validated(layer: Layer, profile: str) -> RunSpec:
    try:
        return RunSpec.model_validate({**layer.tree, "profile": profile})
    except ValidationError as error:
        raise spec_error(error, layer) from None


def _seed_layer(seed: int, overrides: Sequence[str]) -> Layer:
    if any(text.partition("=")[0].strip() == "seed" for text in overrides):
        raise SpecError(f"set twice, to {seed} and by an override", key="seed")
    place = Place(origin=f"given as seed={seed}")
    return Layer(tree={"seed": seed}, places={(): place, ("seed",): place})


@dataclass(frozen=True, kw_only=True, slots=True)
class Experiment:
    """One experiment. `problem` is why it cannot be read, then title and profiles are empty; else None."""

    name: str
    title: str
    file: Path
    profiles: tuple[str, ...]
    origin: Origin
    problem: str | None = None


def experiments(library: Library | None = None) -> list[Experiment]:
    """Every experiment by name, the user's in place of shipped ones of the same name."""
    library = library or Library()
    rows = []
    for name, (file, origin) in library.files().items():
        title, problem = "", None
        profiles: tuple[str, ...] = ()
        try:
            authored = read_authored(file, library)
        except UserError as error:  # one broken file must not hide the others
            problem = str(error)
        else:
            title, profiles = str(authored.layer.tree.get("title", "")), authored.profiles
        rows.append(Experiment(name=name, title=title, file=file, profiles=profiles, origin=origin, problem=problem))
    return rows
