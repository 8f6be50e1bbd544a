"""The process beside a mirror, for its tests: fake_trainer.py or fake_driver.py, and servers that do not answer."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


class StandIn:
    """A script of this folder under way on a run's or a study's directory; its mirror has the id `mirror`."""

    def __init__(self, script: str, directory: Path, uri: str, cwd: Path) -> None:
        settings = {"MLFLOW_TRACKING_URI": uri, "MLFLOW_HTTP_REQUEST_TIMEOUT": "1"}  # a user's own timeout stands
        self.process = subprocess.Popen(
            [sys.executable, "-P", str(Path(__file__).with_name(script)), str(directory)],
            cwd=cwd,
            env={**os.environ, "PYTHONPATH": str(ROOT), **settings},
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self.mirror = int(self._answer()[1])

    def say(self, command: str) -> list[str]:
        """Give it one command; returns its answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self._answer()

    def wait(self, seconds: int = 60) -> tuple[float, str, str]:
        """(seconds it took, state, error) of waiting for the mirror."""
        _, took, state, *error = self.say(f"wait {seconds}")
        return float(took), state, " ".join(error)

    def _answer(self) -> list[str]:
        assert self.process.stdout is not None
        return self.process.stdout.readline().split()


@contextlib.contextmanager
def stand_in(script: str, directory: Path, uri: str, cwd: Path) -> Iterator[StandIn]:
    """A script under way, which is ended with its mirror."""
    process = StandIn(script, directory, uri, cwd)
    try:
        yield process
    finally:
        for pid in (process.mirror, process.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.process.communicate()


@contextlib.contextmanager
def refusing() -> Iterator[int]:
    """The port of a server that is not there."""
    with socket.socket() as listener:  # bound, so that nobody else gets the port, but not listening
        listener.bind(("127.0.0.1", 0))
        yield listener.getsockname()[1]


@contextlib.contextmanager
def silent() -> Iterator[int]:
    """The port of a server that takes connections and answers nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:  # the kernel accepts, nobody answers
        yield listener.getsockname()[1]
