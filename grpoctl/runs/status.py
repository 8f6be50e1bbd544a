"""How a run stands: `status.json`, and the truth about runs whose process died without a word.

What is here: the statuses, the file, `standing` (what is true now) and `reconcile` (writing that down). What is not:
their exit codes (grpoctl.exits) and what MLflow calls them (grpoctl.tracking.payload).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from core.errors import BusyError, StorageError
from grpoctl.runs.records import read_json, read_rows, replace_json

if TYPE_CHECKING:  # run_dir reads statuses; at run time the import goes that way only
    from grpoctl.runs.run_dir import Home, RunDir

SCHEMA = 1
DIED = "its process died"


class Status(StrEnum):
    """What `status.json` says; everything but RUNNING is an ending."""

    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    STOPPED_EARLY = "STOPPED_EARLY"
    PRUNED = "PRUNED"
    COLLAPSED = "COLLAPSED"
    INVALID_ROLLOUT = "INVALID_ROLLOUT"
    FAILED = "FAILED"
    INTERRUPTED = "INTERRUPTED"

    @property
    def ended(self) -> bool:
        """Whether nothing more will come, unless the run is resumed."""
        return self is not Status.RUNNING

    @property
    def resumable(self) -> bool:
        """Whether `--resume` goes on with it: it did not come to an end of its own."""
        return self in (Status.RUNNING, Status.INTERRUPTED, Status.FAILED)


@dataclass(frozen=True, kw_only=True, slots=True)
class StatusRecord:
    """The content of `status.json`. Times are seconds since the epoch; `ended` is None while it runs."""

    status: Status
    pid: int
    started: float
    ended: float | None = None
    step: int = 0
    message: str = ""


def write(path: Path, record: StatusRecord) -> None:
    """Replace the status, atomically and durably. Raises StorageError where the disk is full or read-only."""
    replace_json(path, {"schema": SCHEMA, **dataclasses.asdict(record)})


def read(path: Path) -> StatusRecord | None:
    """The status; None where none was written yet. Raises StorageError for a damaged file or another schema."""
    document = read_json(path)
    if document is None:
        return None
    if document.get("schema") != SCHEMA:
        raise StorageError(f"{path}: schema {document.get('schema')!r}, this grpoctl reads schema {SCHEMA}")
    try:
        ended = document["ended"]
        return StatusRecord(
            status=Status(document["status"]),
            pid=int(document["pid"]),
            started=float(document["started"]),
            ended=None if ended is None else float(ended),
            step=int(document["step"]),
            message=str(document["message"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise StorageError(f"{path}: damaged ({type(error).__name__}: {error})") from error


def reconcile(home: Home) -> list[RunDir]:
    """Every run, in a study or not, that said RUNNING though its process is gone, now INTERRUPTED.

    A damaged status and a home that cannot be written are left alone: `ls` must go on showing what there is.
    """
    from grpoctl.runs.study_status import runs_in_flight  # studies are made of runs, and runs of statuses

    mended = []
    for run in (*home.runs(), *runs_in_flight(home)):
        try:
            if reconcile_run(run):
                mended.append(run)
        except StorageError:
            continue
    return mended


def reconcile_run(run: RunDir) -> bool:
    """Whether this run said RUNNING though nobody holds it; it then says INTERRUPTED."""
    record = read(run.status)
    if record is None or record.status.ended or run.is_held():
        return False
    try:
        with run.hold(patience=0):
            # Read again: between the two looks the run may have ended, or been resumed and ended.
            record = read(run.status)
            if record is None or record.status.ended:
                return False
            write(run.status, _interrupted(run, record))
    except BusyError:
        return False
    return True


def standing(run: RunDir) -> StatusRecord | None:
    """How a run stands: what `status.json` says, but INTERRUPTED where it says RUNNING and nobody holds the run.

    None where no status was written yet. Writes nothing, so that it holds on a full or read-only disk too. Raises
    StorageError for a damaged file.
    """
    record = read(run.status)
    if record is None or record.status.ended or run.is_held():
        return record
    again = read(run.status)  # between the two looks it may have ended, or been resumed
    return _interrupted(run, record) if again == record else again


def _interrupted(run: RunDir, record: StatusRecord) -> StatusRecord:
    """The status of a run whose process died."""
    return dataclasses.replace(
        record,
        status=Status.INTERRUPTED,
        ended=max(record.started, _last_sign_of_life(run)),  # a file's time is coarser than the clock
        step=_last_step(run, record.step),
        message=DIED,
    )


def _last_step(run: RunDir, otherwise: int) -> int:
    try:
        rows = read_rows(run.metrics)
        return int(rows[-1]["step"]) if rows else otherwise
    except (StorageError, KeyError, TypeError):  # damaged rows are no reason to leave the status untrue
        return otherwise


def _last_sign_of_life(run: RunDir) -> float:
    """When the run last wrote something; its real end is unknown and may be days before the reconciliation."""
    return max(path.stat().st_mtime for path in (run.status, run.metrics) if path.exists())
