"""Warm worker processes: the seconds of importing are paid once for each worker, not for each run.

What is here: which worker gets a job, and noticing that one is gone. What is not: a worker's own work (worker), its
pipes and signals (process), its GPU and cores (slots).
"""

from __future__ import annotations

import json
import selectors
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from core.errors import in_words
from grpoctl.children import child_environment, python_module
from grpoctl.executors.base import LEAVES, Died, Ended, Event, Job, JobDone
from grpoctl.executors.process import Start, WorkerProcess
from grpoctl.executors.slots import Slot

# -P: a folder called `core` in the user's current directory must not be taken for ours.
WORKER = tuple(python_module("grpoctl.executors.worker"))
LOOK = 0.5  # seconds: a worker whose pipe is kept open by a child of its own is missed after so long
PATIENCE = 6.0  # seconds workers have to end their runs by themselves, and again after SIGTERM


class _Seat:
    """A slot, the worker in it if there is one, and how far that is with its job."""

    def __init__(self, slot: Slot) -> None:
        self.slot = slot
        self.worker: WorkerProcess | None = None
        self.job: Job | None = None
        self.ended: list[str] = []  # statuses of the job's runs that have ended

    def at(self) -> Path | None:
        """The run the worker is at; None where it has ended the last it was to execute."""
        if self.job is None or len(self.ended) == len(self.job.runs) or (self.ended and self.ended[-1] in LEAVES):
            return None
        return self.job.runs[len(self.ended)]


class Pool:
    """An executor of worker processes, one for each slot, started when there is work for it.

    `logs` is the folder for what they print. A worker that died is replaced, and so is one in which a run failed: the
    next job must not suffer from what that left behind.
    """

    def __init__(
        self,
        slots: Sequence[Slot],
        logs: Path,
        *,
        argv: Sequence[str] = (),
        command: Sequence[str] = WORKER,
        patience: float = PATIENCE,
    ) -> None:
        self._seats = [_Seat(slot) for slot in slots]
        self._logs, self._argv, self._command, self._patience = logs, list(argv), command, patience
        self._leaving: list[WorkerProcess] = []
        self._told: list[Event] = []
        self._selector = selectors.DefaultSelector()
        self._closed = False

    @property
    def slots(self) -> int:
        """Workers at most."""
        return len(self._seats)

    def free(self) -> int:
        """Slots without a job."""
        return sum(seat.job is None for seat in self._seats)

    def pids(self) -> list[int]:
        """The workers there are."""
        return [seat.worker.pid for seat in self._seats if seat.worker is not None]

    def warm(self, jobs: int) -> None:
        """Start workers until there are that many; they import what they need meanwhile."""
        for seat in self._seats[:jobs]:
            if seat.worker is None:
                self._start(seat)

    def submit(self, job: Job) -> None:
        """Give the job to a worker that waits, else to a new one. Raises ValueError where no slot is free."""
        idle = [] if self._closed else [seat for seat in self._seats if seat.job is None]
        if not idle or not job.runs:
            raise ValueError(f"got job {job.number} with {len(job.runs)} runs, {len(idle)} slots are free")
        seat = next((one for one in idle if one.worker is not None), idle[0])
        seat.job, seat.ended = job, []
        why = "" if seat.worker is not None else self._start(seat)
        if seat.worker is None:
            self._lost(seat, why)
        else:
            seat.worker.send(job)

    def events(self, timeout: float) -> list[Event]:
        """What has happened; waits up to `timeout` seconds for the first of it. A death is noticed within a second."""
        deadline = time.monotonic() + timeout
        while not self._closed:
            self._hear()
            self._leaving = [worker for worker in self._leaving if not worker.buried()]
            left = deadline - time.monotonic()
            if self._told or left <= 0:
                break
            self._selector.select(min(LOOK, left))
        told, self._told = self._told, []
        return told

    def close(self) -> None:
        """Stop everything: hang up and wait, then SIGTERM and wait, then SIGKILL. A second Ctrl-C kills at once."""
        if self._closed:
            return
        left = [*self._leaving, *(seat.worker for seat in self._seats if seat.worker is not None)]
        try:
            for worker in left:
                worker.hang_up()
            left = self._outlast(left)
            for worker in left:
                worker.signal(signal.SIGTERM)
                worker.signal(signal.SIGCONT)  # one that was stopped could not end
            left = self._outlast(left)
        finally:
            for worker in left:
                worker.signal(signal.SIGKILL)
            self._outlast(left)
            for worker in self._leaving:
                worker.bury()
            self._selector.close()
            self._closed = True

    def _outlast(self, workers: Sequence[WorkerProcess]) -> list[WorkerProcess]:
        """Those that have not ended after the pool's patience; what they tell meanwhile is taken in."""
        deadline = time.monotonic() + self._patience
        while True:
            self._hear()  # one that finds its pipe full could not end
            left = [worker for worker in workers if not worker.ended()]
            if not left or time.monotonic() >= deadline:
                self._hear()
                return left
            time.sleep(0.01)

    def _hear(self) -> None:
        """Take in what the workers have told, and that they are gone."""
        for seat in self._seats:
            if seat.worker is None:
                continue
            events, more = seat.worker.receive()
            for event in events:
                self._take(seat, event)
            if not more and seat.worker is not None:
                self._selector.unregister(seat.worker)
                why, seat.worker = seat.worker.bury(), None
                self._lost(seat, why)

    def _take(self, seat: _Seat, event: Event) -> None:
        self._told.append(event)
        if isinstance(event, Ended):
            seat.ended.append(event.status)
        if isinstance(event, JobDone):
            seat.job = None
            if "FAILED" in seat.ended and seat.worker is not None:
                self._selector.unregister(seat.worker)
                seat.worker.hang_up()
                self._leaving.append(seat.worker)
                seat.worker = None

    def _lost(self, seat: _Seat, why: str) -> None:
        """The seat has no worker any more; its job, if it had one, is over."""
        if seat.job is None:
            return
        if (run := seat.at()) is not None:
            self._told.append(Died(job=seat.job.number, run=run, message=why))
        self._told.append(JobDone(job=seat.job.number))
        seat.job = None

    def _start(self, seat: _Seat) -> str:
        """Put a worker in the seat; where that fails, why."""
        slot = seat.slot
        start = Start(
            command=self._command,
            arguments=(str(slot.threads), json.dumps(self._argv)),
            environment=slot.environment(child_environment()),
            log=self._logs / f"worker-{slot.number}.log",
        )
        try:
            seat.worker = WorkerProcess(start)
        except OSError as error:
            return f"cannot start a worker: {in_words(error)}"
        self._selector.register(seat.worker, selectors.EVENT_READ)
        return ""
