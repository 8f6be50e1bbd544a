"""The protocol of executors: jobs in, events out; and both as lines of JSON, for the pipes between processes.

What is not here: how a run is executed (inline), jobs in this process (jobs) and in warm worker processes (pool).

A line begins with a newline as well as ending with one: where a writer was interrupted in the middle of the line
before, only that one is lost. So there are empty lines, and lines that hold nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from grpoctl.files import encode
from grpoctl.runs.status import Status

LEAVES = (Status.PRUNED, Status.FAILED, Status.INTERRUPTED)  # endings after which the rest of a job's list is not begun


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """Run directories to execute one after another. `number` is the caller's: the trial they belong to."""

    number: int
    runs: tuple[Path, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """A recorded metrics row that holds an evaluation; numbers JSON cannot write are None."""

    job: int
    run: Path
    row: Mapping[str, float | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """How far a run is; a few a second at most, so not every step is told."""

    job: int
    run: Path
    step: int
    completions: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """A run has ended and its files say so. `error` is the GrpoError's name (StorageError, ...) where one ended it."""

    job: int
    run: Path
    status: str
    message: str = ""
    error: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Died:
    """The worker is gone without a word; `run` is the one it was at. Its status is for whoever reconciles it."""

    job: int
    run: Path
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class JobDone:
    """A slot is free again: the last event of each job, told exactly once, after `Died` too."""

    job: int


Event = Row | Step | Ended | Died | JobDone


class Executor(Protocol):
    """Executes the jobs of a sweep, `slots` at a time; `grpoctl run` asks for none.

    A job's runs are paths: whoever executes them must see this machine's folder (grpoctl.runs.claims). Settings of an
    executor's own come from the environment. Of one thread: none of these may be called from two at once.
    """

    @property
    def slots(self) -> int:
        """Jobs that can be under way at the same time."""
        ...

    def free(self) -> int:
        """Slots that can take a job now."""
        ...

    def warm(self, jobs: int) -> None:
        """Get ready for that many jobs at a time, without waiting for it: the next `submit` then starts at once."""
        ...

    def submit(self, job: Job) -> None:
        """Begin a job. Raises ValueError where no slot is free, or where the job has no runs."""
        ...

    def events(self, timeout: float) -> list[Event]:
        """What has happened, in order for each job; waits up to `timeout` seconds for the first of it."""
        ...

    def close(self) -> None:
        """Stop everything: runs under way end INTERRUPTED with what is on disk. Their last events can still be had
        from `events(0)`. A second call does nothing.
        """
        ...


_KINDS: Mapping[str, type[Event]] = {kind.__name__: kind for kind in (Row, Step, Ended, Died, JobDone)}


def job_line(job: Job) -> bytes:
    """The job as a line."""
    return b"\n" + encode({"number": job.number, "runs": [str(run) for run in job.runs]})


def job_of(line: bytes) -> Job | None:
    """The job of a line; None where it holds none."""
    document = _object(line)
    if document is None:
        return None
    return Job(number=document["number"], runs=tuple(Path(run) for run in document["runs"]))


def event_line(event: Event) -> bytes:
    """The event as a line; numbers JSON cannot write become null."""
    fields = {name: getattr(event, name) for name in event.__slots__}
    if "run" in fields:
        fields["run"] = str(fields["run"])
    return b"\n" + encode({"kind": type(event).__name__, **fields})


def event_of(line: bytes) -> Event | None:
    """The event of a line; None where it holds none."""
    document = _object(line)
    if document is None:
        return None
    kind = _KINDS[document.pop("kind")]
    if "run" in document:
        document["run"] = Path(document["run"])
    return kind(**document)


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        document = json.loads(line)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None
