"""A process and its terminal: the signals that end a run as Ctrl-C does, and processes that outlive the terminal.

What is not here: starting a process (grpoctl.children), what one without a terminal does (grpoctl.cli.background, the
driver of a sweep) and ending it (grpoctl.runs.locks).
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from core.errors import RunError
from grpoctl.children import last_line
from grpoctl.files import storage_errors
from grpoctl.runs.locks import holder


class Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP, or an executor that closes: the run ends as Ctrl-C ends it."""


@contextmanager
def signals_as_interrupts() -> Iterator[None]:
    """Inside, the first SIGTERM or SIGHUP raises Terminated; one that is ignored stays so (`nohup`).

    Those after the first do nothing: whoever sends several must not cut short what the first one brought about. Does
    nothing outside the main thread, where Python forbids it.
    """
    ending = False

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        nonlocal ending
        if not ending:
            ending = True
            raise Terminated

    previous: dict[signal.Signals, Any] = {}
    try:
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_IGN:
                continue
            with suppress(ValueError):
                previous[number] = signal.signal(number, interrupt)
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


BEGINS = 60.0  # seconds: a busy machine takes long to import


def wait_until_held(lock: Path, process: subprocess.Popen[bytes], log: Path, seconds: float = BEGINS) -> None:
    """Return once the process itself holds the lock, or has already ended well.

    Raises RunError with the last line of its log where it ended otherwise, or is not that far after `seconds`.
    """
    deadline = time.monotonic() + seconds
    while holder(lock) != process.pid:
        code = process.poll()
        if code == 0:
            return
        if code is not None:
            raise RunError(f"it ended at once, with code {code}: {last_line(log) or 'no output'} (its log: {log})")
        if time.monotonic() > deadline:
            process.kill()
            raise RunError(f"process {process.pid} had not begun after {seconds:g} s and was ended (its log: {log})")
        time.sleep(0.01)


def print_into(log: Path) -> None:
    """From now on whatever this process prints is added to `log`, which is locked for as long as that is so."""
    sys.stdout.flush()
    sys.stderr.flush()
    with storage_errors("write", log):
        with log.open("ab") as file:
            for descriptor in (sys.stdout.fileno(), sys.stderr.fileno()):
                os.dup2(file.fileno(), descriptor)
        # It goes with the last descriptor of this opening, so whoever follows the log sees that no more will come. Only
        # now: where this process printed into the same file before, it would wait for itself.
        fcntl.flock(sys.stdout.fileno(), fcntl.LOCK_EX)


def ignore_hang_up() -> None:
    """A SIGHUP, whoever sends it, no longer ends this process."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
