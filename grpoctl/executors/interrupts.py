"""SIGTERM and SIGHUP as Ctrl-C: what ends a run from outside."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any


class Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP, or an executor that closes: the run ends as Ctrl-C ends it."""


@contextmanager
def signals_as_interrupts() -> Iterator[None]:
    """The first SIGTERM or SIGHUP raises Terminated; one that is ignored stays so (`nohup`).

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
