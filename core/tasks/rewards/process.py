"""The process that runs reward functions, from our side: started, asked, waited for, ended.

What is here: one question and its answer, or why there is none. What is not: what is asked again (judge).
"""

from __future__ import annotations

import json
import os
import re
import selectors
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import weakref
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.errors import TaskError, in_words

GRACE = 10.0  # seconds in which the child must have ended what it was told to end
_PIECE = 1 << 16
_OURS = re.compile(r'^  File "(<frozen runpy>|.*/core/tasks/rewards/(worker|child)\.py)"')


class LostError(Exception):
    """The process gave no answer: it hung, or died. What is known of it, in lines; `hung` says which."""

    def __init__(self, text: str, *, hung: bool) -> None:
        super().__init__(text)
        self.hung = hung


@dataclass(frozen=True, kw_only=True, slots=True)
class _Handles:
    """What is given back when the process is ended."""

    process: subprocess.Popen[bytes]
    requests: int
    replies: int
    orders: int
    complaints: Any  # a file: what the child itself prints, where it cannot even begin


class RewardProcess:
    """A process under way, in a session of its own. Of one thread: no two may ask it at once.

    `printed` is told the text that the functions print (its end) and the number of bytes. Raises TaskError where no
    process can be started, also where its folder is gone.
    """

    def __init__(self, folder: Path, printed: Callable[[str, int], None]) -> None:
        self._printed = printed
        self._handles = _start(folder)
        self._rest = b""
        self._calls = 0
        self._shut = weakref.finalize(self, _end, self._handles)

    @property
    def alive(self) -> bool:
        """Whether it can be asked."""
        return self._shut.alive

    def ask(self, question: Mapping[str, object], seconds: float) -> dict[str, Any]:
        """The answer to a question. Raises LostError where none came within `seconds`: the process is then ended.

        Whatever else is raised meanwhile (Ctrl-C) ends it as well: it may still be busy with the question. Raises
        TaskError where the question is no JSON.
        """
        self._calls += 1
        try:
            data = json.dumps({"call": self._calls, **question}).encode() + b"\n"
        except (TypeError, ValueError) as error:
            raise TaskError(f"a column of the data cannot be handed to a reward function as JSON: {error}") from error
        with ExitStack() as undo:
            undo.callback(self.end)
            answer = self._exchange(
                data, time.monotonic() + seconds, lambda message: message.get("call") == self._calls
            )
            if answer is None:
                raise self._hung(seconds)
            if "ended" in answer:
                raise self._died(answer)
            self._collect_output()
            undo.pop_all()  # it has answered, so it stays
        return answer

    def end(self) -> None:
        """End it and all that it started. A second call does nothing."""
        self._shut()

    def _collect_output(self) -> None:
        """Have it told what was printed: the guard answers at once, whatever the functions do."""
        with suppress(OSError):
            os.write(self._handles.orders, b"o")
        message = self._exchange(b"", time.monotonic() + GRACE, lambda message: "printed" in message)
        if message is not None:
            self._note(message)

    def _hung(self, seconds: float) -> LostError:
        with suppress(OSError):
            os.write(self._handles.orders, b"k")
        message = self._exchange(b"", time.monotonic() + GRACE, _nothing) or {}
        return LostError(f"no answer within {seconds:.3g} s{_quoted(message)}", hung=True)

    def _died(self, message: Mapping[str, Any]) -> LostError:
        code = message["ended"]
        if code is None:
            how = "ended"
        elif code >= 0:
            how = f"ended with exit code {code}"
        else:
            hint = ", perhaps because memory ran out" if code == -signal.SIGKILL else ""
            how = f"was killed by {signal.Signals(-code).name}{hint}"
        return LostError(f"its process {how}{_quoted(message)}", hung=False)

    def _note(self, message: Mapping[str, Any]) -> None:
        if message.get("bytes"):
            self._printed(message["printed"], message["bytes"])

    def _exchange(
        self, data: bytes, deadline: float, accept: Callable[[dict[str, Any]], bool]
    ) -> dict[str, Any] | None:
        """Write `data` while reading; the first line that is wanted or tells of the end; None where time is up."""
        handles, view = self._handles, memoryview(data)
        with selectors.DefaultSelector() as selector:
            selector.register(handles.replies, selectors.EVENT_READ)
            if data:
                selector.register(handles.requests, selectors.EVENT_WRITE)
            while (seconds := deadline - time.monotonic()) > 0:
                ready = {
                    key.fd for key, _ in selector.select(min(seconds, 60.0))
                }  # a timeout of years is none to the kernel
                if handles.requests in ready:
                    view = _written(handles.requests, view)
                    if not view:
                        selector.unregister(handles.requests)
                if handles.replies in ready and (message := self._read_message(accept)) is not None:
                    return message
        return None

    def _read_message(self, accept: Callable[[dict[str, Any]], bool]) -> dict[str, Any] | None:
        """The first wanted line of what can be read now."""
        piece = os.read(self._handles.replies, _PIECE)
        if not piece:
            return {"ended": None, "printed": _complaint(self._handles)}
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            message = _parsed(line)
            if message is not None and ("ended" in message or accept(message)):
                return message
        return None


def _start(folder: Path) -> _Handles:
    complaints = tempfile.TemporaryFile()  # noqa: SIM115  it lives as long as the process
    read_requests, requests = os.pipe()
    replies, write_replies = os.pipe()
    read_orders, orders = os.pipe()
    theirs = (read_requests, write_replies, read_orders)
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "core.tasks.rewards.child", *map(str, theirs)],
            stdin=subprocess.DEVNULL,
            stdout=complaints,
            stderr=complaints,
            cwd=folder,
            env=_environment(),
            pass_fds=theirs,
            start_new_session=True,
        )
    except OSError as error:
        for descriptor in (requests, replies, orders):
            os.close(descriptor)
        raise TaskError(f"the process for reward functions cannot be started in {folder}: {in_words(error)}") from error
    finally:
        for descriptor in theirs:
            os.close(descriptor)
    os.set_blocking(requests, False)
    return _Handles(process=process, requests=requests, replies=replies, orders=orders, complaints=complaints)


def _end(handles: _Handles) -> None:
    """The child ends itself and all below it once its orders end; where it does not, it is killed."""
    for descriptor in (handles.orders, handles.requests, handles.replies):
        os.close(descriptor)
    try:
        handles.process.wait(GRACE)
    except subprocess.TimeoutExpired:
        handles.process.kill()  # the worker asked the kernel to die with it
        handles.process.wait()
    handles.complaints.close()


def _environment() -> dict[str, str]:
    """Ours, with this very code in the path where it is not installed."""
    root = str(Path(__file__).resolve().parents[3])
    if root in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib")):
        return dict(os.environ)
    path = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": root + (os.pathsep + path if path else "")}


def _written(descriptor: int, view: memoryview) -> memoryview:
    """What is still to be written. Nothing where nobody will read it: that is seen where answers are read."""
    try:
        return view[os.write(descriptor, view[:_PIECE]) :]
    except BlockingIOError:
        return view
    except OSError:
        return view[len(view) :]


def _nothing(_said: dict[str, Any]) -> bool:
    return False


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        message = json.loads(line) if line else None
    except ValueError:
        return None  # the worker died in the middle of it
    return message if isinstance(message, dict) else None


def _complaint(handles: _Handles) -> str:
    handles.complaints.seek(0)
    return str(handles.complaints.read(_PIECE).decode("utf-8", "replace"))


def _quoted(message: Mapping[str, Any]) -> str:
    """The end of what was printed, on lines of its own; of a stack only the user's part."""
    lines = [line for line in str(message.get("printed") or "").splitlines() if not _OURS.search(line)]
    text = "\n".join(lines).strip()
    return f"\nthe last that it printed:\n{text}" if text else ""
