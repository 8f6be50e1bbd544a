"""What every executor does, and what it tells: jobs in, events out.

What is here: the records and the protocol. What is not: how a run is executed (inline), a job's list (jobs), the warm
worker processes (pool) and the thread of this process (same_process).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

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
    """Executes jobs, `slots` at a time. Of one thread: none of these may be called from two at once."""

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
