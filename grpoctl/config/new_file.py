"""A new experiment of the user's own: where it will stand, and putting it there whole or not at all."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from core.errors import UserError
from grpoctl.config.authored import NAME
from grpoctl.config.library import Library, shipped_folder
from grpoctl.files import create_text, storage_errors


def new_file(name: str, library: Library) -> Path:
    """Where the experiment of this name will stand. Raises UserError where that is no name, or taken."""
    known = library.files()
    if name.lower() in known:
        file, origin = known[name.lower()]
        whose = "shipped with grpoctl" if origin == "shipped" else f"yours, {file}"
        raise UserError(f"there is an experiment {name.lower()} already ({whose}); choose another name")
    sweeps = Library(user=library.user.parent / "sweeps", shipped=shipped_folder("sweeps"), kind="sweep")
    if name.lower() in sweeps.files():
        raise UserError(f"{name.lower()} is the name of a sweep; choose another name")
    if not NAME.fullmatch(name):
        raise UserError(f"got the name {name!r}; allowed: lower-case letters, digits, - and _ (at most 64)")
    return library.user / f"{name}.yaml"


def create(file: Path, text: str) -> None:
    """Write a new file whole or not at all. Raises UserError where there is one already, StorageError."""
    new_folder = not file.parent.exists()
    with storage_errors("create", file.parent):
        file.parent.mkdir(parents=True, exist_ok=True)
    try:
        if not create_text(file, text):
            raise UserError(f"{file} is there already; choose another name")
    finally:
        if new_folder and not file.exists():
            with suppress(OSError):
                file.parent.rmdir()
