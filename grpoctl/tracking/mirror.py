"""The process that copies one run to MLflow while it runs: `python -P -m grpoctl.tracking.mirror RUN_DIR`.

What is here: when to write, when to try again, when to stop; sweep_mirror does the same for a study. What is not: what
is written (writer) and how this process is started (launch_mirror). It only reads the run's files, so nothing it does
or suffers can reach the training.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, Protocol

from core.errors import StorageError
from grpoctl.runs import liveness, status
from grpoctl.runs.locks import hold_lock
from grpoctl.runs.run_dir import RunDir
from grpoctl.tracking.mirror_state import Mirrored, MirrorState, one_line, read_state, write_state
from grpoctl.tracking.store import open_client, prepare_environment
from grpoctl.tracking.writer import RunWriter

POLL = 0.25  # seconds between two looks at the files
PATIENCE = 30.0  # longest wait, in seconds, before a store out of reach is tried again
PASS_LIMIT = 600  # seconds after which one pass is taken for stuck, and this process ends itself


class Writer(Protocol):
    """Writes what is new, and says how far it got; after an exception another one is made."""

    def catch_up(self) -> MirrorState:
        """See grpoctl.tracking.writer."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Followed:
    """What a mirror follows: a pass every `poll` seconds, and at once when `ended`, asked every `look` seconds."""

    of: Mirrored
    ended: Callable[[], bool]
    writer: Callable[[], Writer]
    poll: float = POLL
    look: float = POLL


def follow(what: Followed) -> MirrorState:
    """Copy it until it has ended and all of it is in MLflow, or until that fails after its end."""
    writer: Writer | None = None
    failures = 0
    while True:
        over = what.ended()  # before the pass: a pass that began after the end has seen everything
        signal.alarm(PASS_LIMIT)
        try:
            writer = writer or what.writer()
            state = writer.catch_up()
            failures = 0
        except Exception as error:  # noqa: BLE001  the boundary around the tracker: whatever MLflow raises is noted
            writer = None
            failures += 1
            state = _note_failure(what.of, error)
        signal.alarm(0)
        # Where passes had failed before the end, the one then under way is the last: nobody waits for another.
        if state.done or over or (failures > 1 and what.ended()):
            return state
        _wait(what, max(what.poll, min(PATIENCE, POLL * 2**failures)) if failures else what.poll)


def followed_run(run: RunDir) -> Followed:
    """A run as something to follow; one whose process was killed is first given its true status, INTERRUPTED."""
    return Followed(of=run, ended=lambda: has_ended(run), writer=lambda: RunWriter(run, open_client(run.home)))


def has_ended(run: RunDir) -> bool:
    """Whether nothing more will be written; a run that says RUNNING and is held by nobody is told so first."""
    with contextlib.suppress(StorageError):  # a damaged or unwritable status: the lock alone decides
        liveness.reconcile_run(run)
        record = status.read(run.status)
        if record is not None:
            return record.status.ended
    return not run.is_held()


def _wait(what: Followed, seconds: float) -> None:
    """Sleep, but no longer than until its end."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        time.sleep(min(what.look, left))
        if what.ended():
            return


def _note_failure(of: Mirrored, error: Exception) -> MirrorState:
    """The state with the error in it, in the file if that can be written."""
    state = dataclasses.replace(read_state(of) or MirrorState(), state="behind", error=one_line(error))
    with contextlib.suppress(StorageError):
        write_state(of, state)
    return state


def mirror(what: Followed, niceness: int) -> int:
    """Follow it as the one mirror it has, at low priority: 0 when MLflow has all of it, else 1, printing why."""
    os.nice(niceness)  # training comes first
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # numpy comes along with mlflow, and would start a thread per core
    prepare_environment()
    # The mirror of an attempt that was killed may still be at work; two at once would write steps twice.
    with hold_lock(what.of.mirror_lock, patience=None):
        state = follow(what)
    if state.error:
        print(f"{what.of.id}: {state.error}", file=sys.stderr)
    return 0 if state.done else 1


def end(code: int) -> NoReturn:
    """End this process at once.

    Everything is on disk and nothing waits to be sent; taking two thousand modules apart would keep the run waiting.
    """
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    end(mirror(followed_run(RunDir(path=Path(sys.argv[1]).resolve())), niceness=5))
