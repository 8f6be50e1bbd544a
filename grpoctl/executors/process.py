"""One worker process, from its parent's side: started, spoken to, listened to, ended. Which job it gets is the pool's.

Its stdin is closed, its output goes to a log, it is the leader of a session of its own (Ctrl-C in a terminal reaches
the parent only), and jobs and events travel over two pipes that nobody else inherits.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from grpoctl.children import last_line
from grpoctl.executors.base import Event, Job
from grpoctl.executors.wire import event_of, job_line


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """How a worker is started: COMMAND JOBS EVENTS ARGUMENTS, where JOBS and EVENTS are descriptors of its pipes."""

    command: Sequence[str]
    arguments: Sequence[str]
    environment: Mapping[str, str]
    log: Path


class WorkerProcess:
    """A worker under way. Raises OSError where it cannot be started."""

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
        found = [event for line in lines if (event := event_of(line)) is not None]
        return found, open_ and not gone

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
        """Whether it has ended, after `seconds` at most."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return self._process.returncode is not None

    def buried(self) -> bool:
        """Whether it has ended; it then holds nothing any more."""
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
        said = last_line(self.log)
        return f"worker {self.pid} ended with code {code}{f': {said}' if said else ''} (its log: {self.log})"
