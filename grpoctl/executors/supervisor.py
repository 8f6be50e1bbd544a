"""A process between a run and the program that trains it: `python -P -m grpoctl.executors.supervisor GRACE COMMAND...`.

It starts the command in a session of its own and ends with its exit code. When standard input closes, because the run
ends the program or because the run's own process died, however it died, the program gets SIGTERM, all of its session
with it, and after GRACE seconds SIGKILL. Processes that left the session are found as its orphans, and killed, too.
Only the standard library: it must start at once.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

_SUBREAPER = 36  # prctl: orphans among its descendants become this process's children
_LOOK = 0.02  # seconds between two looks at whether everything has ended
NOT_STARTED = 127  # as a shell says it


def supervise(grace: float, command: list[str]) -> int:
    """Run the command to its end, or to the end of standard input; gives its exit code, -N for signal N."""
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    try:
        program = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    except OSError as error:
        sys.stderr.write(f"cannot start {command[0]}: {error.strerror or error}\n")
        return NOT_STARTED
    threading.Thread(target=_watch_parent, args=(program.pid, grace), daemon=True).start()
    code = program.wait()
    _end(program.pid, signal.SIGKILL)  # what it left behind
    return code


def _watch_parent(leader: int, grace: float) -> None:
    """Wait for the end of standard input, then end the program: gently, and after `grace` seconds for good."""
    with suppress(OSError):
        while os.read(0, 4096):
            pass
    _end(leader, signal.SIGTERM)
    deadline = time.monotonic() + grace
    while time.monotonic() < deadline and _sessions(leader):
        time.sleep(_LOOK)
    _end(leader, signal.SIGKILL)


def _end(leader: int, number: signal.Signals) -> None:
    """Send the signal to the program's process group, its session and its orphans."""
    with suppress(OSError):
        os.killpg(leader, number)
    for pid in {*_sessions(leader), *_orphans(leader)}:
        with suppress(OSError):
            os.kill(pid, number)


def _sessions(leader: int) -> list[int]:
    """The processes of the program's session that have not ended."""
    return [pid for pid, (state, _, session) in _processes().items() if session == leader and state != "Z"]


def _orphans(leader: int) -> list[int]:
    """Descendants that the program left behind, in whatever session they are."""
    processes, own = _processes(), os.getpid()
    found = [pid for pid, (_, parent, _) in processes.items() if parent == own and pid != leader]
    for pid in found:
        found += [child for child, (_, parent, _) in processes.items() if parent == pid]
    return found


def _processes() -> dict[int, tuple[str, int, int]]:
    """pid -> (state, parent, session) of every process there is."""
    known = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            known[int(folder.name)] = (fields[0], int(fields[1]), int(fields[3]))
    return known


if __name__ == "__main__":
    ended = supervise(float(sys.argv[1]), sys.argv[2:])
    sys.exit(ended if ended >= 0 else 128 - ended)
