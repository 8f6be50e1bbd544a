"""Which file an experiment's or a sweep's name means: the user's own folder first, then the shipped ones.

Names are case-insensitive, and a path that ends in .yaml is a name too. What a file holds is not read here.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from core.errors import NotFoundError

Origin = Literal["user", "shipped"]
SUFFIX = ".yaml"
# The names that come with grpoctl: in a checkout a user's own files stand beside them in the same folder.
_EXPERIMENTS = """
g10 g11 g12 p29 p30 p30-sound p31 p32 p33 p34 p35 p36 p37 p38 p39 p40 p40-ranks p41 p42 p43 p44 p45 p45-5-6-8
p45-5-8 p46 p47 p48 p48-plan1 p48-short p49 p50 p51 p51-supervised p52 p52-supervised p53 p54 p55 p56 rce-only
staged
"""
_SWEEPS = """
advantage-study baseline collapse-study epochs-study kl-study lr-study p30-ladder restoration-study
reward-study selector-batch selector-data selector-epochs selector-frozen selector-kl selector-ladder
selector-lr selector-reward selector-sizes
"""
SHIPPED: Mapping[str, frozenset[str]] = {
    "experiment": frozenset(_EXPERIMENTS.split()),
    "sweep": frozenset(_SWEEPS.split()),
}


def shipped_folder(kind: str = "experiments") -> Path:
    """Where the package's own files are: inside it in a wheel, beside it in a source checkout."""
    package = Path(__file__).resolve().parents[1]
    inside = package / "shipped" / kind
    return inside if inside.is_dir() else package.parent / kind


@dataclass(frozen=True, kw_only=True, slots=True)
class Library:
    """The folders that hold experiments (or sweeps), one YAML file each, named like the experiment in it."""

    user: Path = field(default_factory=lambda: Path("experiments"))
    shipped: Path = field(default_factory=shipped_folder)
    kind: str = "experiment"  # what its files are, in messages

    def files(self) -> dict[str, tuple[Path, Origin]]:
        """Lower-case name -> (file, origin), sorted by name. A user's file hides a shipped one of the same name.

        In a checkout, where both stand in one folder, SHIPPED says which is which.
        """
        files: dict[str, tuple[Path, Origin]] = {stem: (file, "shipped") for stem, file in _yaml_files(self.shipped)}
        kept = SHIPPED[self.kind] if _same_folder(self.user, self.shipped) else frozenset()
        files.update({stem: (file, "user") for stem, file in _yaml_files(self.user) if stem not in kept})
        return dict(sorted(files.items()))

    def find(self, name: str, *, beside: Path | None = None) -> Path:
        """The file of a name or path; `beside` is a folder that is searched after the user's (a file's own neighbours).

        Raises NotFoundError naming what there is and what is nearest.
        """
        if name.lower().endswith(SUFFIX) or "/" in name:
            path = Path(name)
            if not path.exists():
                raise NotFoundError(f"no file {name}; {self._names(self.files(), near=path.stem)}")
            return path
        known = self.files()
        neighbours = dict(_yaml_files(beside)) if beside is not None else {}
        stem = name.lower()
        if stem in known and (known[stem][1] == "user" or stem not in neighbours):
            return known[stem][0]
        if stem in neighbours:
            return neighbours[stem]
        beside_it = self.user.parent
        if self.kind == "experiment" and stem in sweep_library(beside_it).files():
            raise NotFoundError(f"no experiment {name!r}: it is a sweep; try grpoctl sweep {name}")
        if self.kind == "sweep" and stem in Library(user=beside_it / "experiments").files():
            raise NotFoundError(f"no sweep {name!r}: it is an experiment; try grpoctl run {name}")
        raise NotFoundError(f"no {self.kind} {name!r}; {self._names([*known, *neighbours], near=stem)}")

    def _names(self, known: Iterable[str], near: str) -> str:
        """`did you mean p31? There are: p30, p31`."""
        names = sorted(set(known))
        if not names:
            return f"there are no {self.kind}s: neither ./{self.kind}s nor the installation has any"
        close = difflib.get_close_matches(near.lower(), names, n=1)
        return (f"did you mean {close[0]}? " if close else "") + f"There are: {', '.join(names)}"


def sweep_library(folder: Path = Path()) -> Library:
    """The sweeps there are: those of `folder`/sweeps first, then the shipped ones."""
    return Library(user=folder / "sweeps", shipped=shipped_folder("sweeps"), kind="sweep")


def _yaml_files(folder: Path) -> list[tuple[str, Path]]:
    """(lower-case stem, file) of each .yaml file, hidden ones left out."""
    if not folder.is_dir():
        return []
    files = sorted(file for file in folder.iterdir() if file.suffix == SUFFIX and not file.name.startswith("."))
    return [(file.stem.lower(), file) for file in files]


def _same_folder(folder: Path, other: Path) -> bool:
    return folder.resolve() == other.resolve()
