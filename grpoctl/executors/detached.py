"""Processes that outlive the terminal: waited for until they hold what they are to work on, and where they print.

What is not here: starting one (grpoctl.children), what it does (commands.background, the
driver of a sweep) and ending it (stopping).
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from core.errors import RunError
from grpoctl.children import last_line
from grpoctl.files import storage_errors
from grpoctl.runs.locks import holder

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
