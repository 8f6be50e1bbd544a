"""One job: its runs executed one after another in this process, and what is told of them.

What is here: the order, and which events there are. What is not: where this happens (worker, same_process).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from core.errors import GrpoError, StorageError
from grpoctl.executors.base import LEAVES, Ended, Event, Job, JobDone, Row, Step
from grpoctl.executors.inline import Hooks, execute
from grpoctl.runs import status
from grpoctl.runs.run_dir import RunDir

STEP_PAUSE = 0.25  # seconds between two Step events
Tell = Callable[[Event], None]


def work(job: Job, tell: Tell, one: Callable[[Job, Path], Ended]) -> None:
    """Execute the job's runs with `one`; the list is left after PRUNED, FAILED and INTERRUPTED. Ends with JobDone."""
    for path in job.runs:
        ended = one(job, path)
        tell(ended)
        if ended.status in LEAVES:
            break
    tell(JobDone(job=job.number))


def execute_one(job: Job, path: Path, hooks: Hooks, argv: Sequence[str]) -> Ended:
    """Execute one run without a mirror and say how it ended; also what refused to begin is an end, FAILED.

    A run that had come to an end of its own before is not executed again.
    """
    run = RunDir(path=path)
    try:
        if (before := _ended_before(run)) is not None:
            return Ended(job=job.number, run=path, status=before.status, message=before.message)
        done = execute(run, hooks, argv=argv, mirror=False)
    except GrpoError as error:
        return Ended(job=job.number, run=path, status="FAILED", message=str(error), error=type(error).__name__)
    except KeyboardInterrupt:  # between two runs, or for the second time
        return Ended(job=job.number, run=path, status="INTERRUPTED", message="terminated")
    result = done.result
    return Ended(job=job.number, run=path, status=result["status"], message=result["message"], error=done.error)


class Reporting(Hooks):
    """Tells of a run's evaluations, and a few times a second how far it is.

    `check` is called after each step and while the run waits for its parent; what it raises ends the run.
    """

    def __init__(self, job: Job, path: Path, tell: Tell, check: Callable[[], None] = lambda: None) -> None:
        self._job, self._path, self._tell, self._check = job.number, path, tell, check
        self._due = 0.0

    def waiting(self) -> None:
        """The parent has not answered yet."""
        self._check()

    def row(self, row: Mapping[str, float | None]) -> None:
        """A step was recorded."""
        if any(name.startswith("eval/") for name in row):
            self._tell(Row(job=self._job, run=self._path, row=row))
        now = time.monotonic()
        if now >= self._due:
            self._due = now + STEP_PAUSE
            step, completions = int(row["step"] or 0), int(row.get("completions") or 0)
            self._tell(Step(job=self._job, run=self._path, step=step, completions=completions))
        self._check()


def _ended_before(run: RunDir) -> status.StatusRecord | None:
    """Its status where there is nothing left to execute; None where that is not known."""
    try:
        record = status.read(run.status)
    except StorageError:
        return None
    over = record is not None and not record.status.resumable and run.result.exists()
    return record if over else None
