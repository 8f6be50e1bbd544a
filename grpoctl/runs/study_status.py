"""How a study stands, and which of its runs may be under way, from `sweep.json`: for those who only look.

What is here: the truth about studies whose driver died without a word. What is not: writing `sweep.json`, which is the
driver's alone (grpoctl.sweeps), and the statuses of runs (status).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from core.errors import StorageError
from grpoctl.runs.records import read_json
from grpoctl.runs.run_dir import Home, RunDir
from grpoctl.runs.study_dir import StudyDir, studies

RUNNING, INTERRUPTED = "RUNNING", "INTERRUPTED"
_UNSURE = (RUNNING, INTERRUPTED, "FAILED")  # of a failed trial, a run whose worker was killed may still say RUNNING
DIED = "its driver's process died; go on with --resume"
UNBORN = "its driver's process died before the first trial; go on with --resume"


def study_status(study: StudyDir) -> tuple[str, str]:
    """(status, message) of a study: what sweep.json says, but INTERRUPTED where it says RUNNING and nobody drives it.

    The file is left alone. Raises StorageError where it is damaged.
    """
    status, message = _said(study)
    if status != RUNNING or study.is_held():
        return status, message
    status, message = _said(study)  # again: between the two looks it may have come to its end
    if status != RUNNING:
        return status, message
    return INTERRUPTED, DIED if study.state.exists() else UNBORN


def study_ended(study: StudyDir) -> bool:
    """Whether nothing more will come of a study, unless it is resumed. A damaged sweep.json: the lock alone decides."""
    try:
        return study_status(study)[0] != RUNNING
    except StorageError:
        return not study.is_held()


def runs_in_flight(home: Home) -> list[RunDir]:
    """The runs of all studies that `unfinished_runs` gives."""
    return [run for study in studies(home) for run in unfinished_runs(study)]


def unfinished_runs(study: StudyDir) -> list[RunDir]:
    """The runs of a study whose status may be untrue: those of trials that by sweep.json had no end of their own.

    Where that file is missing or damaged these are all of them. Never raises.
    """
    try:
        trials = (read_json(study.state) or {})["trials"]
        unfinished = [trial for trial in trials if trial["status"] in _UNSURE]
        found = [study.run(int(trial["number"]), int(seed)) for trial in unfinished for seed in trial["seeds"]]
        return [run for run in found if run.spec.exists()]
    except (StorageError, KeyError, TypeError, ValueError):
        with suppress(StorageError):
            return study.runs()
        return []


def _said(study: StudyDir) -> tuple[str, str]:
    document: Mapping[str, Any] = read_json(study.state) or {"status": RUNNING}
    return str(document.get("status") or RUNNING), str(document.get("message") or "")
