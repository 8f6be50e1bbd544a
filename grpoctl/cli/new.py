"""`grpoctl new`: an experiment with data and rewards of your own, to be changed."""

from __future__ import annotations

from typing import Annotated

import typer

from grpoctl.cli.options import Json


def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The experiment's name: a-z, 0-9, - and _.")],
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there.")] = False,
    json: Json = False,
) -> None:
    """Write a new experiment with rewards and data. It runs as it is: change it into a task of your own."""
    from pathlib import Path

    from grpoctl import console
    from grpoctl.cli.scaffolding import write

    files = write(name, Path.cwd(), force=force)
    if json:
        console.print_json({"schema": 1, "name": name, "files": [str(file) for file in files]})
        return
    for file, what in zip(files, ("the experiment", "its rewards", "its data"), strict=True):
        console.print_text(f"{file.relative_to(Path.cwd())}: {what}")
    console.print_text(f"next: grpoctl validate {name} --rewards, then grpoctl run {name}")
