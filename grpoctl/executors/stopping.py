"""Ending a process that works on a run or a study, by the lock that it holds."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from core.errors import RunError
from grpoctl.runs.locks import holder

LOOK = 0.02  # seconds between two looks at the lock


def end_holder(lock: Path, seconds: float) -> int | None:
    """SIGTERM to the process that holds the lock, and wait until it lets go: its pid, None where nobody holds it.

    Raises RunError where it is not a process that can be signalled from here, or holds the lock after `seconds` still.
    """
    pid = holder(lock)
    if pid is None:
        return None
    try:
        process = os.pidfd_open(pid)  # from here on it is this very process, whatever number comes around again
    except OSError as error:
        if holder(lock) is None:
            return pid
        raise RunError(f"{_whose(pid)} holds it, which is not on this machine; stop it where it runs") from error
    try:
        if not _has_open(pid, lock):
            if holder(lock) is None:
                return pid
            raise RunError(f"{_whose(pid)} is said to hold it, but does not, as far as can be seen from here")
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(process, signal.SIGTERM)
            signal.pidfd_send_signal(process, signal.SIGCONT)  # one that was stopped could not end
    except PermissionError as error:
        raise RunError(f"{_whose(pid)} belongs to somebody else; they can stop it") from error
    finally:
        os.close(process)
    deadline = time.monotonic() + seconds
    while holder(lock) == pid:
        if time.monotonic() > deadline:
            raise RunError(
                f"{_whose(pid)} was told to end and is still at it after {seconds:g} s; try again, or kill it"
            )
        time.sleep(LOOK)
    return pid


def _has_open(pid: int, path: Path) -> bool:
    """Whether the process has the file open: a lock belongs to an open file. Raises PermissionError."""
    ours = path.stat()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            theirs = entry.stat()
            if (theirs.st_dev, theirs.st_ino) == (ours.st_dev, ours.st_ino):
                return True
    return False


def _whose(pid: int) -> str:
    return f"process {pid}" if pid else "an unknown process"
