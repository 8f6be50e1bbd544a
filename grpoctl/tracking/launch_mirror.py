"""Starting the mirror of a run and waiting for it. Imports no mlflow: what is written there is not here (mirror)."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

from core.errors import StorageError
from grpoctl.runs.records import storage_errors
from grpoctl.runs.run_dir import RunDir
from grpoctl.tracking.mirror_state import MirrorState, one_line, read_state

ADVICE = "grpoctl sync catches up"


class MirrorHandle:
    """A mirror under way, or the reason why there is none."""

    def __init__(self, run: RunDir, process: subprocess.Popen[bytes] | None, error: str | None = None) -> None:
        self._run = run
        self._process = process
        self._error = error

    @property
    def pid(self) -> int | None:
        """The mirror's process id; None where it could not be started."""
        return self._process.pid if self._process else None

    def wait(self, seconds: float) -> MirrorState:
        """How far the copy has come, once the mirror has ended or after `seconds`: state `done`, or `behind` and why.

        Call it when the run has its final status. Never raises, and leaves a mirror that is still at work alone.
        """
        if self._process is None:
            return MirrorState(state="behind", error=self._error)
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return MirrorState(state="behind", error=f"MLflow is still being written after {seconds:g} s; {ADVICE}")
        state = read_state(self._run)
        if state is not None and state.state != "live":
            return state
        why = _last_line(self._run.mirror_log) or f"the mirror ended with code {code}"
        return MirrorState(state="behind", error=f"{why}; {ADVICE}")


def start_mirror(run: RunDir) -> MirrorHandle:
    """Start the mirror of a run that is held and has its spec and its status RUNNING. Never raises.

    The process has a session of its own (Ctrl-C reaches the training only), no stdin, and prints to `mirror.log`.
    """
    # -P: a folder called `core` in the user's current directory must not be taken for ours.
    command = [sys.executable, "-P", "-m", "grpoctl.tracking.mirror", str(run.path.resolve())]
    try:
        with storage_errors("start the MLflow mirror of", run.path), run.mirror_log.open("ab") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=_environment(),
            )
    except StorageError as error:
        return MirrorHandle(run, None, f"{one_line(error)}; {ADVICE}")
    return MirrorHandle(run, process)


def _environment() -> dict[str, str]:
    """Ours, with this very code in the path where it is not installed."""
    root = str(Path(__file__).resolve().parents[2])
    if root in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib")):
        return dict(os.environ)  # in front of the standard library, site-packages could replace parts of it
    path = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": root + (os.pathsep + path if path else "")}


def _last_line(path: Path) -> str:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return ""
    return next((one_line(RuntimeError(line)) for line in reversed(lines) if line.strip()), "")
