"""The process that copies one run to MLflow while it runs: `python -P -m grpoctl.tracking.mirror RUN_DIR`.

What is here: when to write, when to try again, when to stop. What is not: what is written (writer) and how this process
is started (launch_mirror). It only reads the run's files, so nothing it does or suffers can reach the training.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import sys
import time
from pathlib import Path

from core.errors import StorageError
from grpoctl.runs import status
from grpoctl.runs.locks import hold_lock
from grpoctl.runs.run_dir import RunDir
from grpoctl.tracking.mirror_state import MirrorState, one_line, read_state, write_state
from grpoctl.tracking.store import open_client, prepare_environment
from grpoctl.tracking.writer import RunWriter

POLL = 0.25  # seconds between two looks at the files
PATIENCE = 30.0  # longest wait, in seconds, before a store out of reach is tried again
PASS_LIMIT = 600  # seconds after which one pass is taken for stuck, and this process ends itself


def follow(run: RunDir) -> MirrorState:
    """Copy the run until it has ended and all of it is in MLflow, or until that fails after its end.

    A run whose process was killed is first given its true status, INTERRUPTED.
    """
    writer: RunWriter | None = None
    failures = 0
    while True:
        over = has_ended(run)  # before the pass: a pass that began after the end has seen everything
        signal.alarm(PASS_LIMIT)
        try:
            writer = writer or RunWriter(run, open_client(run.home))
            state = writer.catch_up()
            failures = 0
        except Exception as error:  # noqa: BLE001  the boundary around the tracker: whatever MLflow raises is noted
            writer = None
            failures += 1
            state = _note_failure(run, error)
        signal.alarm(0)
        # Where passes had failed before the end, the one then under way is the last: nobody waits for another.
        if state.done or over or (failures > 1 and has_ended(run)):
            return state
        _wait(run, POLL if not failures else min(PATIENCE, POLL * 2**failures))


def has_ended(run: RunDir) -> bool:
    """Whether nothing more will be written; a run that says RUNNING and is held by nobody is told so first."""
    with contextlib.suppress(StorageError):  # a damaged or unwritable status: the lock alone decides
        status.reconcile_run(run)
        record = status.read(run.status)
        if record is not None:
            return record.status.ended
    return not run.is_held()


def _wait(run: RunDir, seconds: float) -> None:
    """Sleep, but no longer than until the run ends."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        time.sleep(min(POLL, left))
        if has_ended(run):
            return


def _note_failure(run: RunDir, error: Exception) -> MirrorState:
    """The state with the error in it, in the file if that can be written."""
    state = dataclasses.replace(read_state(run) or MirrorState(), state="behind", error=one_line(error))
    with contextlib.suppress(StorageError):
        write_state(run, state)
    return state


def main(argv: list[str]) -> int:
    """Mirror the run directory named by the only argument: 0 when MLflow has all of it, else 1."""
    run = RunDir(path=Path(argv[1]).resolve())
    os.nice(5)  # training comes first
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # numpy comes along with mlflow, and would start a thread per core
    prepare_environment()
    # The mirror of an attempt that was killed may still be at work; two at once would write steps twice.
    with hold_lock(run.mirror_lock, patience=None):
        state = follow(run)
    if state.error:
        print(f"{run.id}: {state.error}", file=sys.stderr)
    return 0 if state.done else 1


if __name__ == "__main__":
    code = main(sys.argv)
    sys.stderr.flush()
    # Everything is on disk and nothing waits to be sent; taking two thousand modules apart would keep the run waiting.
    os._exit(code)
