"""Servers that a test starts itself: each under grpoctl's own supervisor, so that it ends with the test, come what may.

A supervisor ends its program, and whatever that left behind, as soon as its standard input closes: when it is told to,
and when the process of the tests was killed.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from grpoctl.children import last_line, python_module
from tests.end_to_end.cli import ROOT

GRACE = 10.0  # seconds from SIGTERM to SIGKILL
SBIN = ("/usr/sbin", "/sbin")


class Daemon:
    """A server under way. Its output is added to `log`."""

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> None:
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                python_module("grpoctl.executors.supervisor", str(GRACE), *command),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env={**os.environ, **(environment or {}), "PYTHONPATH": str(ROOT)},
                start_new_session=True,
            )

    def alive(self) -> bool:
        """True while it runs; fails the test with its last words where it does not."""
        assert self._process.poll() is None, f"{self._process.args}: {last_line(self.log)}"
        return True

    def descendants(self) -> list[int]:
        """The processes that the supervisor started or took over, and theirs, in whatever session they are."""
        found = [self._process.pid]
        for pid in found:
            with suppress(OSError):  # it has ended meanwhile
                tasks = Path(f"/proc/{pid}/task").glob("*/children")
                found += [int(child) for task in tasks for child in task.read_text().split()]
        return found[1:]

    def kill(self) -> None:
        """SIGKILL to the server and all it started, as when the machine's power goes."""
        for pid in self.descendants():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.end()

    def end(self) -> None:
        """End it, and wait until it has ended."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(GRACE + 20)
        finally:
            if self._process.poll() is None:
                self._process.kill()


def program(name: str, *places: str) -> str | None:
    """The path of a program, also where root's programs are or in `places`; None where it is not installed."""
    return shutil.which(name, path=os.pathsep.join((os.environ.get("PATH", ""), *SBIN, *places)))


def free_port() -> int:
    """A TCP port that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listens(port: int) -> bool:
    """True when somebody takes connections at the port."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def open_folder(name: str) -> Iterator[Path]:
    """A folder that every user can enter, unlike pytest's, which is its own user's alone."""
    with tempfile.TemporaryDirectory(prefix=f"grpoctl-{name}-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)
