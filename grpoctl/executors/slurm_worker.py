"""A worker that is a SLURM job: `python -P -m grpoctl.executors.slurm_worker FOLDER LEAD`.

What is here: taking jobs from the folder, leaving in time, and ending when the driver is gone. What is not: the files
(mailbox), submitting the job (slurm).

SLURM sends SIGUSR1 some LEAD seconds before the time limit. The run under way then ends after its step with a
checkpoint, and the job asks to be queued again; a run whose step takes longer than half of LEAD goes on from its last
checkpoint. A worker that has nothing to do just ends.
"""

from __future__ import annotations

import gc
import importlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from core.errors import GrpoError
from grpoctl.executors.base import LEAVES, JobDone
from grpoctl.executors.jobs import Reporting, execute_one
from grpoctl.executors.mailbox import Employer, Order, WorkerDir
from grpoctl.executors.slots import Slot, usable_cores
from grpoctl.executors.worker import PRELOADED, make_room
from grpoctl.fence import Fence
from grpoctl.runs.claims import BEAT

LOOK = 0.1  # seconds between two looks for a job
TIME_LIMIT = "paused before its SLURM job's time limit; it goes on in another"
ASK = 60.0  # seconds that scontrol may take


class Signals:
    """What this process is asked by signals and by its driver's silence; watched by a thread beside the training."""

    def __init__(self, lead: float) -> None:
        self.leaving = False  # the time limit is near
        self.over = False  # end
        self._lead, self._deadline = lead, float("inf")
        self._woken, wake = socket.socketpair()
        wake.setblocking(False)
        self._wake = wake
        for number in (signal.SIGUSR1, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)

    def watch(self, employer: Employer, fence: Fence) -> None:
        """Begin to watch."""
        threading.Thread(target=self._watch, args=(employer, fence), name="watch", daemon=True).start()

    def _watch(self, employer: Employer, fence: Fence) -> None:
        while not self.over:
            ready, _, _ = select.select([self._woken], [], [], BEAT)
            numbers = self._woken.recv(64) if ready else b""
            if signal.SIGUSR1 in numbers and not self.leaving:
                self.leaving, self._deadline = True, time.monotonic() + self._lead / 2
            asked = signal.SIGTERM in numbers  # a run under way has got it too
            if asked or time.monotonic() > self._deadline or employer.gone() or _lost(fence):
                self.over = True
                if not asked:
                    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)


class Departing(Reporting):
    """Tells of a run, and has it leave when the time limit is near."""

    signals: Signals

    def leaving(self) -> str:
        """Why the run is to end after this step, with a checkpoint."""
        return TIME_LIMIT if self.signals.leaving else ""


def serve(folder: WorkerDir, employer: Employer, fence: Fence, signals: Signals, threads: int) -> bool:
    """Work through the jobs until the end. True where a run is to be gone on with: this job is then queued again."""
    served = 0
    while not (signals.over or signals.leaving):
        order = folder.ordered()
        if order is None or order.attempt != fence.attempt or order.serial <= served:
            time.sleep(LOOK)
            continue
        served = order.serial
        if not _work(folder, order, employer, signals, threads):
            return signals.leaving
    return False


def _work(folder: WorkerDir, order: Order, employer: Employer, signals: Signals, threads: int) -> bool:
    """Execute the runs of a job, telling how each ended; False where this process is to end instead."""
    for path in order.job.runs:
        make_room(threads)
        hooks = Departing(order.job, path, lambda event: folder.tell(order, event))
        hooks.signals = signals
        ended = execute_one(order.job, path, hooks, employer.argv)
        if ended.status == "INTERRUPTED" and (signals.leaving or signals.over):
            return False  # the driver sees that this worker ended, and gives the rest to another
        folder.tell(order, ended)
        if ended.status in LEAVES:
            break
    folder.tell(order, JobDone(job=order.job.number))
    return not signals.over


def _lost(fence: Fence) -> bool:
    """True when another process is this worker by now."""
    try:
        fence.check()
    except GrpoError:
        return True
    return False


def cores_of(environment: Mapping[str, str]) -> int:
    """Cores that SLURM gave this job on this node; SLURM need not bind it to them."""
    given = environment.get("SLURM_CPUS_PER_TASK") or environment.get("SLURM_CPUS_ON_NODE") or ""
    return min(usable_cores(), int(given)) if given.isdigit() and int(given) else usable_cores()


def queue_again(job: str) -> None:
    """Ask SLURM to start this job once more. Where it refuses, the driver submits another one."""
    with suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(["scontrol", "requeue", job], stdin=subprocess.DEVNULL, check=False, timeout=ASK)


def main(argv: list[str]) -> None:
    """Serve until there is nothing to do any more."""
    signals = Signals(float(argv[2]))
    folder = WorkerDir(path=Path(argv[1]))
    threads = cores_of(os.environ)
    os.environ.update(Slot(number=0, threads=threads).environment(os.environ))  # before torch is imported
    employer = folder.employer()
    again = False
    if not employer.gone():
        with folder.hold() as fence:
            signals.watch(employer, fence)
            for name in PRELOADED:
                importlib.import_module(name)
            gc.collect()
            gc.freeze()
            again = serve(folder, employer, fence, signals, threads)
            if signals.leaving:
                folder.leave(fence.attempt, "left before its time limit")
    job = os.environ.get("SLURM_JOB_ID", "")
    if again and job:
        queue_again(job)


if __name__ == "__main__":
    try:
        main(sys.argv)
    except GrpoError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        os._exit(1)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
