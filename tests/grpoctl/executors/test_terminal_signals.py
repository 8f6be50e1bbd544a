"""Signals that end a process reach a run as Ctrl-C does."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from threading import Thread

import pytest

from grpoctl.executors.terminal import Terminated, signals_as_interrupts


@pytest.fixture
def heard() -> Iterator[list[int]]:
    """The signals that nobody else took; without this they would end the tests."""
    signals: list[int] = []
    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, lambda number, _: signals.append(number)) for number in numbers]
    yield signals
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_run_as_ctrl_c_does(heard: list[int], number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with pytest.raises(Terminated), signals_as_interrupts():
        os.kill(os.getpid(), number)
    assert issubclass(Terminated, KeyboardInterrupt)
    assert signal.getsignal(number) is before
    assert heard == []


def test_a_second_signal_does_not_cut_short_what_the_first_brought_about(heard: list[int]) -> None:
    with signals_as_interrupts():
        with pytest.raises(Terminated):
            os.kill(os.getpid(), signal.SIGTERM)
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGHUP)
        except Terminated:
            pytest.fail("the second signal was raised too")
    assert heard == []


def test_a_signal_that_is_ignored_stays_so(heard: list[int]) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        with signals_as_interrupts():
            os.kill(os.getpid(), signal.SIGHUP)
    except Terminated:
        pytest.fail("an ignored SIGHUP ended the run")
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_outside_the_main_thread_signals_are_left_alone() -> None:
    seen = []

    def inside() -> None:
        with signals_as_interrupts():
            seen.append(signal.getsignal(signal.SIGTERM))

    before = signal.getsignal(signal.SIGTERM)
    thread = Thread(target=inside)
    thread.start()
    thread.join()
    assert seen == [before]
