"""`python -P -m core.tasks.rewards.child REQUESTS REPLIES ORDERS`: a worker, and the guard that watches it.

The guard runs no user code, so it always hears its parent: it ends the worker and all that the worker started when it
is told to, or when the parent is gone. It reads what they print, and keeps the end of it.

    ORDERS   b"o": tell what was printed since; b"k": say where the worker is, then end; end of file: end
    REPLIES  {"printed": "...", "bytes": 12}   {"ended": -9, "printed": "...", "bytes": 12}   and the worker's own lines
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import sys
import time
import traceback
from contextlib import suppress

from core.tasks.rewards.worker import WHERE_ARE_YOU, work

KEPT = 8192  # bytes of what was printed; as JSON they fit into a pipe that nobody reads
_DEATH_SIGNAL, _ADOPT = 1, 36  # prctl: PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER


class Guard:
    """Waits for the worker's end, its parent's orders and what is printed; never for the worker's answers."""

    def __init__(self, worker: int, output: int, orders: int, replies: int) -> None:
        self._worker, self._output, self._orders, self._replies = worker, output, orders, replies
        self._kept, self._bytes = b"", 0
        self._code: int | None = None
        os.set_blocking(output, False)
        self._wake, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def watch(self) -> None:
        """Return once the worker and its descendants are gone and the parent was told, or is gone itself."""
        while not self._ended():
            readable, _, _ = select.select([self._orders, self._output, self._wake], [], [])
            if self._wake in readable:
                os.read(self._wake, 4096)
            if self._output in readable:
                self._read_output()
            if self._orders in readable:
                self._obey(os.read(self._orders, 1))
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._worker, signal.SIGKILL)
        end_descendants()
        self._tell({"ended": self._code, **self._printed()})

    def _ended(self) -> bool:
        """Whether the worker has ended; reaps what it left behind to us, too."""
        with suppress(ChildProcessError):
            while self._code is None:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                if pid == self._worker:
                    self._code = os.waitstatus_to_exitcode(status)
        return self._code is not None

    def _obey(self, order: bytes) -> None:
        if order == b"o":
            self._tell(self._printed())
            return
        with suppress(ProcessLookupError):
            if order == b"k":
                os.kill(self._worker, WHERE_ARE_YOU)
                select.select([self._wake], [], [], 0.25)  # until it has said so, or died of being asked
            os.kill(self._worker, signal.SIGKILL)
        with suppress(ChildProcessError):
            _, status = os.waitpid(self._worker, 0)
            self._code = os.waitstatus_to_exitcode(status)

    def _printed(self) -> dict[str, object]:
        """What was printed since the last time: the end of it, and how many bytes there were."""
        for _ in range(64):  # not for ever, where something prints all the time
            if not self._read_output():
                break
        message: dict[str, object] = {"printed": self._kept.decode("utf-8", "replace"), "bytes": self._bytes}
        self._kept, self._bytes = b"", 0
        return message

    def _read_output(self) -> bool:
        try:
            piece = os.read(self._output, 1 << 16)
        except BlockingIOError:
            return False
        if not piece:
            time.sleep(0.01)  # all writers have closed theirs: not to be read in a busy loop
        self._kept = (self._kept + piece)[-KEPT:]
        self._bytes += len(piece)
        return bool(piece)

    def _tell(self, message: dict[str, object]) -> None:
        """One line; begun with a line end, since the worker may have died in the middle of one."""
        with suppress(BrokenPipeError):
            data = b"\n" + json.dumps(message).encode() + b"\n"
            while data:
                data = data[os.write(self._replies, data) :]


def end_descendants(seconds: float = 5.0) -> None:
    """Kill every process below this one, those that left its group too: orphans are handed to it (`main` asked so)."""
    deadline = time.monotonic() + seconds
    while (children := _children()) and time.monotonic() < deadline:
        for pid in children:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.002)


def _children() -> list[int]:
    """The processes whose parent this one is, from /proc."""
    children = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        with suppress(OSError, IndexError), open(f"/proc/{entry}/stat", "rb") as file:
            if int(file.read().rpartition(b")")[2].split()[1]) == os.getpid():
                children.append(int(entry))
    return children


def _ask_kernel(option: int, value: int) -> None:
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def main() -> None:
    """Fork the worker, then watch it. The fork is before anything of a user's is imported."""
    requests, replies, orders = (int(text) for text in sys.argv[1:4])
    for descriptor in (requests, replies, orders):
        os.set_inheritable(descriptor, False)
    output, printed = os.pipe()
    _ask_kernel(_ADOPT, 1)
    guard = os.getpid()
    if (worker := os.fork()) == 0:
        try:
            os.setpgid(0, 0)
            _ask_kernel(_DEATH_SIGNAL, signal.SIGKILL)
            if os.getppid() != guard:
                os._exit(0)
            os.dup2(printed, 1)
            os.dup2(printed, 2)
            for descriptor in (orders, output, printed):
                os.close(descriptor)
            work(requests, replies)
        finally:
            with suppress(OSError, ValueError):
                traceback.print_exc()
            os._exit(70)
    os.close(requests)
    os.close(printed)
    Guard(worker, output, orders, replies).watch()


if __name__ == "__main__":
    main()
