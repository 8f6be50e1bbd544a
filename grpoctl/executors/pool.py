"""Warm worker processes: the seconds of importing are paid once for each worker, not for each run.

What is here: one worker from its parent's side, which worker gets a job, and noticing that one is gone. What is not: a
worker's own work (worker), its GPU and cores (slots).
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from core.errors import in_words
from grpoctl.children import child_environment, last_line, python_module
from grpoctl.executors.base import LEAVES, Died, Ended, Event, Job, JobDone, event_of, job_line
from grpoctl.executors.slots import Slot


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """How a worker is started: COMMAND JOBS EVENTS ARGUMENTS, where JOBS and EVENTS are descriptors of its pipes."""

    command: Sequence[str]
    arguments: Sequence[str]
    environment: Mapping[str, str]
    log: Path


class WorkerProcess:
    """A worker under way. Raises OSError where it cannot be started.

    Its stdin is closed, its output goes to a log, it is the leader of a session of its own (Ctrl-C in a terminal
    reaches the parent only), and jobs and events travel over two pipes that nobody else inherits.
    """

    def __init__(self, start: Start) -> None:
        start.log.parent.mkdir(parents=True, exist_ok=True)
        self.log = start.log
        jobs, self._jobs = os.pipe()
        self._events, events = os.pipe()
        try:
            with start.log.open("ab") as log:
                self._process = subprocess.Popen(
                    [*start.command, str(jobs), str(events), *start.arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=start.environment,
                    pass_fds=(jobs, events),
                    start_new_session=True,
                )
        except OSError:
            self.hang_up()
            os.close(self._events)
            raise
        finally:
            os.close(jobs)
            os.close(events)
        os.set_blocking(self._events, False)
        self._rest = b""
        self._closed = False

    @property
    def pid(self) -> int:
        """The process, and the group that it leads."""
        return self._process.pid

    def fileno(self) -> int:
        """What becomes readable when there are events, or the worker is gone."""
        return self._events

    def send(self, job: Job) -> None:
        """Hand it a job. One that is gone takes it without a word: that is seen when it is listened to."""
        with suppress(OSError):
            data = job_line(job)
            while data:
                data = data[os.write(self._jobs, data) :]

    def receive(self) -> tuple[list[Event], bool]:
        """What it has told since the last call, without waiting, and whether it will tell more."""
        gone = self._process.poll() is not None  # before reading: what it told before it ended is then all there
        chunks, open_ = [], True
        while open_:
            try:
                chunk = os.read(self._events, 1 << 16)
            except BlockingIOError:
                break
            chunks.append(chunk)
            open_ = bool(chunk)
        *lines, self._rest = (self._rest + b"".join(chunks)).split(b"\n")
        events = [event for line in lines if (event := event_of(line)) is not None]
        return events, open_ and not gone

    def hang_up(self) -> None:
        """Close its pipe of jobs: it ends what it is at, INTERRUPTED, and then itself."""
        if self._jobs >= 0:
            os.close(self._jobs)
            self._jobs = -1

    def signal(self, number: signal.Signals) -> None:
        """To it and all its children; to nobody where it has ended."""
        if self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def ended(self, seconds: float = 0.0) -> bool:
        """True when it has ended, after `seconds` at most."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return self._process.returncode is not None

    def buried(self) -> bool:
        """True when it has ended; it then holds nothing any more."""
        if not self.ended():
            return False
        self.bury()
        return True

    def bury(self) -> str:
        """Give back what it still holds, killing it where it lives; how it ended, in words."""
        self.hang_up()
        if not self.ended(1.0):
            self.signal(signal.SIGKILL)
            self._process.wait()
        if not self._closed:
            os.close(self._events)
            self._closed = True
        return self._obituary()

    def _obituary(self) -> str:
        code = self._process.returncode
        if code == -signal.SIGKILL:
            return f"worker {self.pid} was killed (SIGKILL), perhaps because memory ran out"
        if code < 0:
            return f"worker {self.pid} was ended by {signal.Signals(-code).name}"
        last = last_line(self.log)
        return f"worker {self.pid} ended with code {code}{f': {last}' if last else ''} (its log: {self.log})"


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
        self._events_due: list[Event] = []
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
        seat = next((seat for seat in idle if seat.worker is not None), idle[0])
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
            if self._events_due or left <= 0:
                break
            self._selector.select(min(LOOK, left))
        events, self._events_due = self._events_due, []
        return events

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
        self._events_due.append(event)
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
            self._events_due.append(Died(job=seat.job.number, run=run, message=why))
        self._events_due.append(JobDone(job=seat.job.number))
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
