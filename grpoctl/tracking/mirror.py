"""The mirror of a run, or of a study and its runs, in MLflow: starting it, and the process itself, which is
`python -P -m grpoctl.tracking.mirror DIRECTORY`.

What is here: when to write, when to try again, when to stop, and how far it has come. What is not: what is written
(writer, sweep_writer). The process only reads files, so nothing it does or suffers can reach the training. A study has
one process for all its runs: importing mlflow costs two seconds, and a sweep has a run every few seconds.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, Protocol

from core.errors import StorageError
from grpoctl.children import last_line, spawn
from grpoctl.runs import liveness, status
from grpoctl.runs.liveness import study_ended, unfinished_runs
from grpoctl.runs.locks import hold_lock
from grpoctl.runs.run_dir import STUDY_SPEC, RunDir
from grpoctl.runs.study_dir import StudyDir
from grpoctl.tracking.mirror_state import Mirrored, MirrorState, one_line, read_state, write_state
from grpoctl.tracking.store import open_client, prepare_environment
from grpoctl.tracking.sweep_writer import SweepWriter
from grpoctl.tracking.writer import RunWriter

ADVICE = "grpoctl sync catches up"
POLL = 0.25  # seconds between two looks at the files
STUDY_POLL = 3.0  # of a study: rows go in batches of some size, which is what makes them cheap
STUDY_LOOK = 0.5  # seconds between two looks whether a study has ended
PATIENCE = 30.0  # longest wait, in seconds, before a store out of reach is tried again
PASS_LIMIT = 600  # seconds after which one pass is taken for stuck, and this process ends itself


class MirrorHandle:
    """A mirror under way, or the reason why there is none."""

    def __init__(self, of: Mirrored, process: subprocess.Popen[bytes] | None, error: str | None = None) -> None:
        self._of = of
        self._process = process
        self._error = error

    @property
    def pid(self) -> int | None:
        """The mirror's process id; None where it could not be started."""
        return self._process.pid if self._process else None

    def wait(self, seconds: float) -> MirrorState:
        """How far the copy has come, once the mirror has ended or after `seconds`: state `done`, or `behind` and why.

        Call it when the run, or the study, has its final status, and the study its figures. Never raises, and leaves a
        mirror that is still at work alone.
        """
        if self._process is None:
            return MirrorState(state="behind", error=self._error)
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return MirrorState(state="behind", error=f"MLflow is still being written after {seconds:g} s; {ADVICE}")
        state = read_state(self._of)
        if state is not None and state.state != "live":
            return state
        line = last_line(self._of.mirror_log)
        why = one_line(RuntimeError(line)) if line else f"the mirror ended with code {code}"
        return MirrorState(state="behind", error=f"{why}; {ADVICE}")


def start_mirror(of: RunDir | StudyDir) -> MirrorHandle:
    """Start the mirror of a run, or the one mirror of a study and all its runs. Never raises.

    A run is held and has its spec and its status RUNNING; a study is held and has its spec, a sweep.json may follow.
    None of the study's runs must get a mirror of its own. The process has a session of its own (Ctrl-C reaches the
    training only), no stdin, and prints to `mirror.log`.
    """
    try:
        return MirrorHandle(of, spawn(["grpoctl.tracking.mirror", str(of.path.resolve())], of.mirror_log))
    except StorageError as error:
        return MirrorHandle(of, None, f"{one_line(error)}; {ADVICE}")


class Writer(Protocol):
    """Writes what is new, and says how far it got; after an exception another one is made."""

    def catch_up(self) -> MirrorState:
        """See grpoctl.tracking.writer."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """What a mirror follows: a pass every `poll` seconds, and at once when `ended`, asked every `look` seconds."""

    of: Mirrored
    ended: Callable[[], bool]
    writer: Callable[[], Writer]
    poll: float = POLL
    look: float = POLL
    niceness: int = 5


def follow(what: Target) -> MirrorState:
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


def run_target(run: RunDir) -> Target:
    """A run as something to follow; one whose process was killed is first given its true status, INTERRUPTED."""

    def ended() -> bool:
        return run.lives_elsewhere() or has_ended(run)

    return Target(of=run, ended=ended, writer=lambda: RunWriter(run, open_client(run.home)))


def has_ended(run: RunDir) -> bool:
    """Whether nothing more will be written; one that says RUNNING and that nobody holds gets its true status first."""
    with contextlib.suppress(StorageError):  # a damaged or unwritable status: the lock alone decides
        liveness.reconcile_run(run)
        record = status.read(run.status)
        if record is not None:
            return record.status.ended
    return not run.is_held()


class StudyWatch:
    """When a study is over, asked twice a second: its file is read only where it has changed, or nobody drives it."""

    def __init__(self, study: StudyDir) -> None:
        self._study = study
        self._seen: tuple[int, int] | None = None

    def ended(self) -> bool:
        """Whether study and runs are over, or a driver on another machine, which has a mirror there, goes on with them.

        A run whose process died is first given its true status, INTERRUPTED.
        """
        if self._study.lives_elsewhere():
            return True
        try:
            now = self._study.state.stat()
            seen = (now.st_size, now.st_mtime_ns)
        except OSError:
            seen = None
        if seen is not None and seen == self._seen and self._study.is_held():
            return False
        if study_ended(self._study):
            under_way = [run for run in unfinished_runs(self._study) if not has_ended(run)]
            return not under_way
        self._seen = seen
        return False


def study_target(study: StudyDir) -> Target:
    """A study as something to follow."""

    def writer() -> SweepWriter:
        client = open_client(study.home)
        # A hundred thousand points are as many short-lived objects, and mlflow's thousand modules stay: a quarter of
        # the time went into looking at these again and again for garbage.
        gc.freeze()
        gc.set_threshold(50_000)
        return SweepWriter(study, client, still=lambda: signal.alarm(PASS_LIMIT))

    return Target(of=study, ended=StudyWatch(study).ended, writer=writer, poll=STUDY_POLL, look=STUDY_LOOK, niceness=10)


def _wait(what: Target, seconds: float) -> None:
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


def mirror(what: Target) -> int:
    """Follow it as the one mirror it has, at low priority: 0 when MLflow has all of it, else 1, printing why."""
    os.nice(what.niceness)  # training comes first
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


def target_of(path: Path) -> Target:
    """The run or study in this directory as something to follow."""
    return study_target(StudyDir(path=path)) if (path / STUDY_SPEC).is_file() else run_target(RunDir(path=path))


if __name__ == "__main__":
    end(mirror(target_of(Path(sys.argv[1]).resolve())))
