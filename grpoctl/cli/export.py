"""`grpoctl export`: a run's weights in a folder of one's own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from grpoctl.cli.options import Json


def export(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Run (id, directory), or experiment (its newest run).")],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new or empty folder.")],
    merged: Annotated[bool, typer.Option("--merged", help="Merge the adapter into the weights of its base.")] = False,
    json: Json = False,
) -> None:
    """Copy a run's weights and model card, as an adapter or merged."""
    from grpoctl import console
    from grpoctl.cli.exporting import export as write

    document = write(run, Path(os.path.expanduser(folder)), merged=merged)
    if json:
        console.print_json(document)
        return
    console.print_text(f"{document['dir']}: {document['what']} of {document['run_id']}, step {document['step']}")
    console.print_text(f'next: grpoctl sample {document["dir"]} "..."')
