"""Starting the mirror of a run, or of a sweep and all its runs, and waiting for it.

Imports no mlflow: what is written there is not here (mirror).
"""

from __future__ import annotations

import subprocess

from core.errors import StorageError
from grpoctl.children import last_line, spawn
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
        said = last_line(self._of.mirror_log)
        why = one_line(RuntimeError(said)) if said else f"the mirror ended with code {code}"
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
