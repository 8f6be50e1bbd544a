"""Runs reward functions: a line of JSON asks, a line answers. In a process of its own, which may die of it.

What is here: one call. What is not: who watches this process (child) and what a lost call costs (judge).

    {"call": 1, "resolve": ["pkg.mod:f", "dir/file.py:g"], "base": "dir"}   -> {"call": 1, "functions": [...]}
    {"call": 2, "function": 0, "rows": 8, "step": 3, "arguments": {...}, "extras": ["log_metric"]}
        -> {"call": 2, "values": [...], "refused": {"3": "why"}}  or  {"call": 2, "error": "traceback"}
"""

from __future__ import annotations

import contextlib
import faulthandler
import inspect
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NoReturn, TextIO

from core.tasks.rewards.functions import Function, NotFound, UnusableError, described, numbers_of, put_first, resolve

ERROR_LIMIT = 6000  # characters of a traceback that are sent: its beginning and its end
WHERE_ARE_YOU = signal.SIGUSR2  # prints the stack, whatever the process is busy with

_NOT_THEIRS = ("core.tasks.rewards.", "importlib", "asyncio.")  # modules between us and a user's own frames
_as_main = sys.modules["__main__"]  # kept alive: this very code may be in it


def work(requests: int, replies: int) -> NoReturn:
    """Answer every line until there are no more. The descriptors are for this process only. Never returns."""
    _begin()
    worker = _Worker()
    me = os.getpid()
    with os.fdopen(requests, "rb") as lines:
        for line in lines:
            answer = worker.answer(json.loads(line))
            if os.getpid() != me:  # a reward forked, and this is the copy, which must not speak
                break
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(ValueError, OSError, AttributeError):
                    stream.flush()
            _write(replies, json.dumps(answer).encode() + b"\n")
    os._exit(0)


class _Worker:
    """The functions, and the one event loop that those which are `async` share, as they would in TRL."""

    def __init__(self) -> None:
        self._functions: list[Function | None] = []
        self._loop: Any = None

    def answer(self, order: Mapping[str, Any]) -> dict[str, Any]:
        if "resolve" in order:
            base = Path(order["base"])
            put_first(base)
            return {"call": order["call"], "functions": [self._resolve(one, base) for one in order["resolve"]]}
        signal.alarm(0)  # one that an earlier call left behind
        found, error = caught(lambda: self._call(order))
        return {"call": order["call"], **(found if error is None else {"error": error})}

    def _resolve(self, reference: str, base: Path) -> dict[str, object]:
        function, error = caught(lambda: resolve(reference, base))
        self._functions.append(function)
        if error is None:
            facts, error = caught(lambda: described(function))
            if error is None:
                return facts  # type: ignore[no-any-return]
        return {"error": error}

    def _call(self, order: Mapping[str, Any]) -> dict[str, Any]:
        function = self._functions[order["function"]]
        assert function is not None
        extras = {name: _EXTRAS[name](order["step"]) for name in order["extras"]}
        returned = function(**order["arguments"], **extras)
        if inspect.isawaitable(returned):
            returned = self._awaited(returned)
        numbers = numbers_of(returned, order["rows"])
        return {"values": numbers.values, "refused": numbers.refused}

    def _awaited(self, awaitable: Any) -> object:
        import asyncio

        if self._loop is None or self._loop.is_closed():
            self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop)
        return self._loop.run_until_complete(awaitable)


def caught(action: Callable[[], Any]) -> tuple[Any, str | None]:
    """What the action returns, or how it failed: SystemExit and KeyboardInterrupt are failures as others are."""
    try:
        return action(), None
    except (NotFound, UnusableError) as error:
        return None, str(error)
    except BaseException as error:  # noqa: BLE001  the boundary around one call of a user's code
        return None, _told(error)


def _told(error: BaseException) -> str:
    """The traceback without our own frames, cut in its middle where it is long."""
    place = error.__traceback__
    while place is not None and place.tb_frame.f_globals.get("__name__", "").startswith(_NOT_THEIRS):
        place = place.tb_next
    text = "".join(traceback.format_exception(type(error), error, place)).rstrip()
    if place is None:  # no frame of theirs is in it: a file that cannot even be parsed
        text = f"Traceback (most recent call last):\n{text}"
    if len(text) <= ERROR_LIMIT:
        return text
    half = ERROR_LIMIT // 2
    return f"{text[:half]}\n... {len(text) - 2 * half} characters left out ...\n{text[-half:]}"


def _trainer_state(step: int) -> SimpleNamespace:
    """What transformers' TrainerState has, as far as it means anything here."""
    return SimpleNamespace(
        global_step=step, max_steps=0, epoch=0.0, num_train_epochs=0, log_history=[], best_metric=None,
        is_local_process_zero=True, is_world_process_zero=True,
    )  # fmt: skip


def _log_extra(_step: int) -> Callable[[str, Any], None]:
    """Takes columns for TRL's table of completions: there is none here."""
    return lambda _column, _values: None


def _log_metric(_step: int) -> Callable[[str, float], None]:
    """Prints a metric, so that it stands where all that rewards print stands."""
    return lambda name, value: print(f"log_metric {name} = {value}")


_EXTRAS: dict[str, Callable[[int], Any]] = {
    "trainer_state": _trainer_state,
    "log_extra": _log_extra,
    "log_metric": _log_metric,
}


def _begin() -> None:
    """Make this process look to a user's code like one of its own."""
    sys.argv = ["rewards"]
    # New ones: those made when Python started wrote into a file, and these write into a pipe, line by line.
    sys.stdout = sys.__stdout__ = _lines_to(1)  # type: ignore[misc, assignment]
    sys.stderr = sys.__stderr__ = _lines_to(2)  # type: ignore[misc, assignment]
    faulthandler.enable(sys.stderr)
    faulthandler.register(WHERE_ARE_YOU, sys.stderr, all_threads=True)
    with contextlib.suppress(OSError):  # where memory runs out, the kernel takes this process and not the training
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    # A user's own package may be called `core`, and its processes must not begin with our __main__.
    for name in [name for name in sys.modules if name == "core" or name.startswith("core.")]:
        del sys.modules[name]
    sys.modules["__main__"] = ModuleType("__main__")


def _lines_to(descriptor: int) -> TextIO:
    return open(descriptor, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
