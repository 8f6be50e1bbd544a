"""Starting the mirror of a run, or of a sweep and all its runs, and waiting for it.

Imports no mlflow: what is written there is not here (mirror).
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from core.errors import StorageError
from grpoctl.files import storage_errors
from grpoctl.runs.children import child_environment
from grpoctl.runs.run_dir import RunDir
from grpoctl.runs.study_dir import StudyDir
from grpoctl.tracking.mirror_state import Mirrored, MirrorState, one_line, read_state

ADVICE = "grpoctl sync catches up"


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
        why = _last_line(self._of.mirror_log) or f"the mirror ended with code {code}"
        return MirrorState(state="behind", error=f"{why}; {ADVICE}")


def start_mirror(run: RunDir) -> MirrorHandle:
    """Start the mirror of a run that is held and has its spec and its status RUNNING. Never raises.

    The process has a session of its own (Ctrl-C reaches the training only), no stdin, and prints to `mirror.log`.
    """
    return _start(run, "grpoctl.tracking.mirror")


def start_sweep_mirror(study: StudyDir) -> MirrorHandle:
    """Start the one mirror of a study that is held and of all its runs, as `start_mirror` does. Never raises.

    It may be started before there is a sweep.json. None of the study's runs must get a mirror of its own.
    """
    return _start(study, "grpoctl.tracking.sweep_mirror")


def _start(of: Mirrored, module: str) -> MirrorHandle:
    # -P: a folder called `core` in the user's current directory must not be taken for ours.
    command = [sys.executable, "-P", "-m", module, str(of.path.resolve())]
    try:
        with storage_errors("start the MLflow mirror of", of.path), of.mirror_log.open("ab") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=child_environment(),
            )
    except StorageError as error:
        return MirrorHandle(of, None, f"{one_line(error)}; {ADVICE}")
    return MirrorHandle(of, process)


def _last_line(path: Path) -> str:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return ""
    return next((one_line(RuntimeError(line)) for line in reversed(lines) if line.strip()), "")
