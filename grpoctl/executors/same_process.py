"""An executor without processes: one job at a time, in a thread of this process.

A thread, because a run may wait for its parent's word (control.json) and the parent lives in this very process. What is
here: that thread. What is not: a job's order and what is told (jobs).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from queue import Empty, SimpleQueue

from grpoctl.executors.base import Died, Ended, Event, Job, JobDone
from grpoctl.executors.interrupts import Terminated
from grpoctl.executors.jobs import Reporting, execute_one, work

PATIENCE = 60.0  # seconds `close` waits for the step under way: a thread cannot be killed


class Inline:
    """Executes jobs in this process. `close` ends a run after the step it is at."""

    slots = 1

    def __init__(self, *, argv: Sequence[str] = (), patience: float = PATIENCE) -> None:
        self._argv, self._patience = argv, patience
        self._told: SimpleQueue[Event] = SimpleQueue()
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
        found: list[Event] = []
        try:
            found.append(self._told.get(timeout=timeout) if timeout > 0 else self._told.get_nowait())
            while True:
                found.append(self._told.get_nowait())
        except Empty:
            pass
        if any(isinstance(event, JobDone) for event in found) and self._thread is not None:
            self._thread.join()
            self._thread = None
        return found

    def close(self) -> None:
        """End the run under way after its step; one that does not end in time ends with this process."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join(self._patience)

    def _work(self, job: Job) -> None:
        at, ended = job.runs[0], False

        def one(job: Job, path: Path) -> Ended:
            nonlocal at
            at = path
            hooks = Reporting(job, path, self._told.put, self._check)
            return execute_one(job, path, hooks, self._argv)

        try:
            work(job, self._told.put, one)
            ended = True
        finally:
            if not ended:  # the traceback goes where those of threads go
                self._told.put(Died(job=job.number, run=at, message="the thread of the run died"))
                self._told.put(JobDone(job=job.number))

    def _check(self) -> None:
        if self._closing.is_set():
            raise Terminated
