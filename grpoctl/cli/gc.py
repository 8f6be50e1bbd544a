"""`grpoctl gc`: what in the home can go, how much that frees, and with --yes its removal."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Annotated

import typer

from core.errors import BusyError, StorageError
from grpoctl import console
from grpoctl.cli import exits
from grpoctl.cli.lookup import run_or_study
from grpoctl.cli.options import Json
from grpoctl.runs import garbage, liveness
from grpoctl.runs.garbage import KINDS, Garbage
from grpoctl.runs.run_dir import Home
from grpoctl.wording import plural


def gc(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Runs and studies to look at. Default: all.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Remove it. Without this nothing is touched.")] = False,
    json: Json = False,
) -> None:
    home = Home.locate()
    liveness.reconcile(home)
    found = garbage.find(home, [run_or_study(home, name) for name in names or ()])
    removed, kept = _removed(found) if yes else ([], {})
    if json:
        entries = [{**one.document(), "removed": one in removed, "problem": kept.get(str(one.path))} for one in found]
        freed = sum(one.size for one in removed)
        document = {"schema": 1, "home": str(home.path), "bytes": sum(one.size for one in found), "freed": freed}
        console.print_json({**document, "found": entries})
    else:
        _print(found, removed, kept, yes=yes, names=names or ())
    raise typer.Exit(exits.FAILED if kept else exits.OK)


def _removed(found: list[Garbage]) -> tuple[list[Garbage], dict[str, str]]:
    """What was taken away, and path -> why it was not of the rest."""
    removed, kept = [], {}
    for one in found:
        try:
            garbage.remove(one)
            removed.append(one)
        except (BusyError, StorageError) as error:
            kept[str(one.path)] = str(error)
    return removed, kept


def _print(
    found: list[Garbage], removed: list[Garbage], kept: dict[str, str], *, yes: bool, names: Sequence[str]
) -> None:
    if not found:
        console.print_text("nothing can go: best and last checkpoints, and whatever goes on or is shared, are kept")
        return
    rows = []
    for kind, text in KINDS.items():
        if of_kind := [one for one in found if one.kind == kind]:
            rows.append((str(len(of_kind)), size_text(sum(one.size for one in of_kind)), text))
    console.print_table("What can go", ("", "frees", ""), rows)
    for path, problem in kept.items():
        console.print_note(f"warning: kept {path}: {problem}")
    if yes:
        freed = size_text(sum(one.size for one in removed))
        console.print_text(f"removed {plural(len(removed), 'item')}, {freed} freed")
        return
    command = shlex.join(["grpoctl", "gc", *names, "--yes"])
    console.print_text(f"nothing was removed; to free {size_text(sum(one.size for one in found))}: {command}")


def size_text(size: int) -> str:
    """`4.2 MB`; decimal units, as disks are sold."""
    value, unit = float(size), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 1000 or unit == "TB":
            break
        value /= 1000
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
