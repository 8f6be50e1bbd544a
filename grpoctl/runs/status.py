"""The statuses of runs, trials and studies, and `status.json` of a run, read and written.

What is not here: whether it is still true (liveness), the exit codes (grpoctl.cli.exits) and what MLflow calls
the statuses (grpoctl.tracking.payload).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from core.errors import StorageError
from grpoctl.files import read_json, replace_json

SCHEMA = 1


class Status(StrEnum):
    """How a run stands; everything but RUNNING is an ending."""

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
        """True when nothing more will come, unless the run is resumed."""
        return self is not Status.RUNNING

    @property
    def resumable(self) -> bool:
        """True when `--resume` goes on with the run: it did not come to an end of its own."""
        return self in (Status.RUNNING, Status.INTERRUPTED, Status.FAILED)


FINISHED = frozenset(status for status in Status if not status.resumable)  # came to an end of their own
STOPPED_BY_GUARD = frozenset({Status.COLLAPSED, Status.INVALID_ROLLOUT})
UNDISTURBED = FINISHED - STOPPED_BY_GUARD


class TrialStatus(StrEnum):
    """How a trial of a study stands; RUNNING, PAUSED and INTERRUPTED ones may be gone on with.

    A PAUSED one has no run under way, and may get another (adaptive allocation).
    """

    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    COMPLETED = "COMPLETED"
    PRUNED = "PRUNED"
    COLLAPSED = "COLLAPSED"
    INVALID_ROLLOUT = "INVALID_ROLLOUT"
    FAILED = "FAILED"
    INTERRUPTED = "INTERRUPTED"

    @property
    def ended(self) -> bool:
        """True when nothing more will come of the trial, unless it failed and is retried."""
        return self not in (TrialStatus.RUNNING, TrialStatus.PAUSED, TrialStatus.INTERRUPTED)


UNDER_WAY = frozenset(status for status in TrialStatus if not status.ended)
# A pruned trial's score is of a part of its budget; a collapsed or invalid one has the stated worst value.
RANKED = frozenset({TrialStatus.COMPLETED, TrialStatus.COLLAPSED, TrialStatus.INVALID_ROLLOUT})


class StudyStatus(StrEnum):
    """How a study stands: its driver is at work, came to an end, or was interrupted."""

    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    STOPPED = "STOPPED"
    FAILED = "FAILED"
    INTERRUPTED = "INTERRUPTED"

    @property
    def ended(self) -> bool:
        """True when the study came to an end of its own, which `--resume` need not go on with."""
        return self not in (StudyStatus.RUNNING, StudyStatus.INTERRUPTED)


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
