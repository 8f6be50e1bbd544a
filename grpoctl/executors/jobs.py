"""Jobs executed in this process: the runs of each one after another, and the events they give.

A worker process does it for a pool (worker). `Inline` does it without any other process, in a thread: a run may wait
for its parent's word (control.json), and the parent lives in this very process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue

from core.errors import GrpoError, StorageError
from grpoctl.executors.base import LEAVES, Died, Ended, Event, Job, JobDone, Row, Step
from grpoctl.executors.execution import execute
from grpoctl.executors.hooks import Hooks
from grpoctl.executors.terminal import Terminated
from grpoctl.runs import status
from grpoctl.runs.problems import tidy
from grpoctl.runs.run_dir import RunDir

STEP_PAUSE = 0.25  # seconds between two Step events
PATIENCE = 60.0  # seconds `close` waits for the step under way: a thread cannot be killed
Tell = Callable[[Event], None]


def work(job: Job, tell: Tell, execute_run: Callable[[Job, Path], Ended]) -> None:
    """Execute the runs of the job until one ends PRUNED, FAILED or INTERRUPTED; the last event is JobDone."""
    for path in job.runs:
        ended = execute_run(job, path)
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
        if (before := _earlier_end(run)) is not None:
            tidy(run)
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


def _earlier_end(run: RunDir) -> status.StatusRecord | None:
    """The status of a run that came to an end of its own before; None for one that is still to be executed."""
    try:
        record = status.read(run.status)
    except StorageError:
        return None
    over = record is not None and not record.status.resumable and run.result.exists()
    return record if over else None


class Inline:
    """Executes jobs in this process. `close` ends a run after the step it is at."""

    slots = 1

    def __init__(self, *, argv: Sequence[str] = (), patience: float = PATIENCE) -> None:
        self._argv, self._patience = argv, patience
        self._events: SimpleQueue[Event] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()

    def free(self) -> int:
        """1, or 0 while a job is under way."""
        return int(self._thread is None and not self._closing.is_set())

    def warm(self, jobs: int) -> None:
        """Nothing to get ready."""

    def submit(self, job: Job) -> None:
        """Begin the job. Raises ValueError where one is under way, or where it has no runs."""
        if not self.free() or not job.runs:
            raise ValueError(f"got job {job.number} with {len(job.runs)} runs, {self.free()} slots are free")
        self._thread = threading.Thread(target=self._work, args=(job,), daemon=True)
        self._thread.start()

    def events(self, timeout: float) -> list[Event]:
        """What has happened; waits up to `timeout` seconds for the first of it."""
        events: list[Event] = []
        try:
            events.append(self._events.get(timeout=timeout) if timeout > 0 else self._events.get_nowait())
            while True:
                events.append(self._events.get_nowait())
        except Empty:
            pass
        if any(isinstance(event, JobDone) for event in events) and self._thread is not None:
            self._thread.join()
            self._thread = None
        return events

    def close(self) -> None:
        """End the run under way after its step; one that does not end in time ends with this process."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join(self._patience)

    def _work(self, job: Job) -> None:
        """The thread: the job, and what became of it where the thread itself fails."""
        at, ended = job.runs[0], False

        def execute_run(job: Job, path: Path) -> Ended:
            nonlocal at
            at = path
            hooks = Reporting(job, path, self._events.put, self._check)
            return execute_one(job, path, hooks, self._argv)

        try:
            work(job, self._events.put, execute_run)
            ended = True
        finally:
            if not ended:  # the traceback goes where those of threads go
                self._events.put(Died(job=job.number, run=at, message="the thread of the run died"))
                self._events.put(JobDone(job=job.number))

    def _check(self) -> None:
        if self._closing.is_set():
            raise Terminated
