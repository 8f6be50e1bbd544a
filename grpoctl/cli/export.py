"""`grpoctl export`: a run's weights in a folder of one's own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from grpoctl import console
from grpoctl.analysis.outcome import no_better_than_start
from grpoctl.cli.lookup import exported_run
from grpoctl.cli.options import Json
from grpoctl.exports import weights
from grpoctl.files import read_json
from grpoctl.runs.run_dir import Home


def export(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Run (id, directory), or experiment (its newest run).")],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new or empty folder.")],
    merged: Annotated[bool, typer.Option("--merged", help="Merge the adapter into the weights of its base.")] = False,
    json: Json = False,
) -> None:
    folder = Path(os.path.expanduser(folder))
    exported = exported_run(Home.locate(), run)
    weights.check_target(folder)
    run_id = exported.run.id
    warning = no_better_than_start(read_json(exported.run.result) or {}, exported.step)
    if warning is not None:
        console.print_note(f"{run_id}: {warning}")
    if merged and exported.format != "peft":
        console.print_note(f"{run_id} trained weights of its own: they are a whole model already")
    merges = merged and exported.format == "peft"
    if merges:
        weights.merge(exported, folder)
    else:
        weights.copy(exported, folder)
    what = "merged weights" if merges else "adapter" if exported.format == "peft" else "weights"
    if json:
        document = {
            "schema": 1,
            "run_id": run_id,
            "step": exported.step,
            "dir": str(folder.absolute()),
            "format": "transformers" if merges else exported.format,
            "what": what,
            "merged": merges,
            "base_model": exported.spec.starts_from,
            "files": {file.name: file.stat().st_size for file in sorted(folder.iterdir()) if file.is_file()},
            "warning": warning,
        }
        console.print_json(document)
        return
    console.print_text(f"{folder.absolute()}: {what} of {run_id}, step {exported.step}")
    if exported.spec.model is not None:  # only a language model's folder says by itself what it is
        console.print_text(f'next: grpoctl sample {folder.absolute()} "..."')
