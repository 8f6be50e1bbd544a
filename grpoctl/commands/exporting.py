"""One `grpoctl export`: which weights, in which form, and what was written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from grpoctl import console
from grpoctl.analysis.outcome import no_better_than_start
from grpoctl.commands.subjects import exported_run
from grpoctl.runs import exports
from grpoctl.runs.records import read_json
from grpoctl.runs.run_dir import Home


def export(run: str, folder: Path, *, merged: bool) -> dict[str, Any]:
    """The JSON document of an export. Raises NotFoundError, UserError, ModelError, StorageError."""
    found = exported_run(Home.locate(), run)
    exports.check_target(folder)
    warning = no_better_than_start(read_json(found.run.result) or {}, found.step)
    if warning is not None:
        console.print_note(f"{found.run.id}: {warning}")
    if merged and found.format == "transformers":
        console.print_note(f"{found.run.id} trained weights of its own: they are a whole model already")
    if merged and found.format == "peft":
        exports.merge(found, folder)
        form = "transformers"
    else:
        exports.copy(found, folder)
        form = found.format
    files = {file.name: file.stat().st_size for file in sorted(folder.iterdir()) if file.is_file()}
    what = "adapter" if form == "peft" else "merged weights" if found.format == "peft" else "weights"
    return {
        "schema": 1,
        "run_id": found.run.id,
        "step": found.step,
        "dir": str(folder.absolute()),
        "format": form,
        "what": what,
        "merged": form != found.format,
        "base_model": found.spec.starts_from,
        "files": files,
        "warning": warning,
    }
