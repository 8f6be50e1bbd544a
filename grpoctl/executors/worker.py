"""A worker process of a pool: `python -P -m grpoctl.executors.worker JOBS EVENTS THREADS ARGV`.

What is here: reading jobs from one pipe, executing them, telling events to the other, and ending at once when the
parent is gone. What is not: starting and stopping workers (pool). JOBS and EVENTS are file descriptors,
THREADS is this worker's share of the cores, ARGV (JSON) the command line that the runs' provenance names.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from types import FrameType

from grpoctl.executors.base import Ended, Event, Job, event_line, job_of
from grpoctl.executors.jobs import Reporting, Tell, execute_one, work

GRACE = 5.0  # seconds a run under way has to end by itself once the parent is gone
PRELOADED = (
    "core.assemble", "core.policies.lm.build", "core.training.trainer", "core.training.checkpoint",
    "core.training.outcome", "core.health.examine", "peft", "pyarrow.parquet", "pandas",  # pyarrow loads pandas itself
)  # fmt: skip


class Inbox:
    """The jobs as they arrive. From its making on this process ends when its parent does, or hangs up."""

    def __init__(self, descriptor: int) -> None:
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._closed = False
        self._working = False
        signal.signal(signal.SIGTERM, self._terminated)
        threading.Thread(target=self._listen, args=(descriptor,), daemon=True).start()

    def serve(
        self, events: int, execute_run: Callable[[Job, Path, Tell], Ended], tidy: Callable[[], None] = lambda: None
    ) -> None:
        """Work through the jobs with `execute_run`, telling events to the descriptor, until there will be no more.

        `tidy` is called before the first job and after each.
        """

        def tell(event: Event) -> None:
            with suppress(OSError):  # the parent is gone, and so will this process be
                _write(events, event_line(event))

        tidy()
        while (job := self._jobs.get()) is not None:
            self._working = True
            work(job, tell, lambda job, path: execute_run(job, path, tell))
            self._working = False
            tidy()  # while the next job is being chosen

    def _listen(self, descriptor: int) -> None:
        """Take in each job; when the pipe closes, end what is under way, gently for GRACE seconds."""
        with open(descriptor, "rb") as pipe:
            for line in pipe:
                if (job := job_of(line)) is not None:
                    self._jobs.put(job)
        self._closed = True
        self._jobs.put(None)
        if self._working:
            # To that thread: a system call it waits in would not see a signal that another thread took.
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
            threading.Event().wait(GRACE)
        os._exit(1)

    def _terminated(self, _number: int, _frame: FrameType | None) -> None:
        """SIGTERM between two runs: the end, but for a worker that is about to end and has a run's end to tell."""
        if not self._closed:
            os._exit(128 + signal.SIGTERM)


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def main(argv: list[str]) -> None:
    """Serve until the parent closes the pipe."""
    jobs, events, threads = (int(word) for word in argv[1:4])
    command = json.loads(argv[4])
    for descriptor in (jobs, events):
        os.set_inheritable(descriptor, False)

    inbox = Inbox(jobs)
    for name in PRELOADED:  # seconds, which pass before the first job is there, or at least only once
        importlib.import_module(name)

    def execute_run(job: Job, path: Path, tell: Tell) -> Ended:
        if path != job.runs[0]:
            make_room(threads)
        return execute_one(job, path, Reporting(job, path, tell), command)

    inbox.serve(events, execute_run, partial(make_room, threads))


def make_room(threads: int) -> None:
    """Nothing is left of the run before: not its model, and not its one thread, which the tiny model takes."""
    import torch

    gc.collect()
    gc.freeze()  # what is here between two runs stays (modules, caches): collecting need not look at it again
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.empty_cache()  # another worker may share the GPU
    torch.set_num_threads(threads)


if __name__ == "__main__":
    main(sys.argv)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # everything is on disk; taking torch apart would keep the parent waiting
