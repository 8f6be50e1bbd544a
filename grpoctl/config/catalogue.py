"""The experiments there are, for `grpoctl ls`: one line each, also for a file that cannot be loaded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from core.errors import UserError
from grpoctl.config.authored import read_authored
from grpoctl.config.library import Library, Origin


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
    return [_experiment(name, file, origin, library) for name, (file, origin) in library.files().items()]


def _experiment(name: str, file: Path, origin: Origin, library: Library) -> Experiment:
    try:
        authored = read_authored(file, library)
    except UserError as error:  # one broken file must not hide the others
        return Experiment(name=name, title="", file=file, profiles=(), origin=origin, problem=str(error))
    title = str(authored.layer.tree.get("title", ""))
    return Experiment(name=name, title=title, file=file, profiles=authored.profiles, origin=origin)
