"""What `status.json` says of a run: the statuses there are, and the file, read and written.

What is not here: whether it is still true (liveness), the exit codes (grpoctl.commands.exits) and what MLflow calls
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
