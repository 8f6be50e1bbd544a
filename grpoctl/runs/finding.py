"""Which run or path a name means, among those there are. Where runs are is not here (run_dir)."""

from __future__ import annotations

import difflib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from core.errors import NotFoundError, StorageError
from grpoctl.runs.records import read_json

if TYPE_CHECKING:  # run_dir chooses by this; at run time the import goes that way only
    from grpoctl.runs.run_dir import RunDir


def path_of(name: str) -> Path:
    """The path that a name may be; one that there cannot be, of an unknown user or over-long, is one that is not."""
    path = Path(os.path.expanduser(name))
    try:
        (path / "spec.yaml").exists()
    except (OSError, ValueError):
        return Path(os.devnull)
    return path


def choose(name: str, runs: Sequence[RunDir], home: Path) -> RunDir:
    """The run of this id, experiment name (the first of its runs) or unique beginning of an id.

    Raises NotFoundError naming what fits, or the nearest there is.
    """
    wanted = name.lower()
    for run in runs:
        if run.id == wanted:
            return run
    fitting = [run for run in runs if run.id.startswith(wanted)]
    for run in fitting:
        if run.id.startswith(f"{wanted}-") and _experiment(run) == wanted:
            return run
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        some = ", ".join(run.id for run in fitting[:4]) + (", ..." if len(fitting) > 4 else "")
        raise NotFoundError(f"{name!r} fits {len(fitting)} runs ({some}); give more of the id")
    near = difflib.get_close_matches(wanted, [run.id for run in runs] + [_experiment(run) for run in runs], n=1)
    hint = f"did you mean {near[0]!r}?" if near else "grpoctl ls shows the runs there are"
    raise NotFoundError(f"no run {name!r} in {home}; {hint}")


def _experiment(run: RunDir) -> str:
    """The experiment the run belongs to; empty where its provenance does not say."""
    try:
        return str((read_json(run.provenance) or {}).get("experiment", ""))
    except StorageError:
        return ""
