"""Ending whoever holds a lock, and nobody else. The holders are real processes that hold a lock and do nothing."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from core.errors import RunError
from grpoctl.runs.locks import end_holder, hold_lock, holder
from tests.end_to_end.cli import ROOT, eventually

pytestmark = pytest.mark.process

HOLDS = """\
import signal, sys, time
from pathlib import Path
from grpoctl.runs.locks import hold_lock
if sys.argv[2] == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
with hold_lock(Path(sys.argv[1]), 0) as pid:
    assert pid is None, pid
    time.sleep(60)
"""
Holds = Callable[..., int]


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    return tmp_path / "lock"


@pytest.fixture
def held_by(lock: Path) -> Iterator[Holds]:
    """Starts a process that holds the lock; gives its pid."""
    processes: list[subprocess.Popen[bytes]] = []

    def start(how: str = "") -> int:
        command = [sys.executable, "-P", "-c", HOLDS, str(lock), how]
        processes.append(subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)}))
        eventually(lambda: holder(lock) == processes[-1].pid, "it holds the lock")
        return processes[-1].pid

    yield start
    for process in processes:
        process.kill()
        process.wait()


def test_a_look_at_the_lock_is_not_taken_for_a_holder(lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with lock.open("w") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)  # as a process that asks who holds it has it for an instant
        monkeypatch.setattr("grpoctl.runs.locks.time.sleep", lambda _: looking.close())
        with hold_lock(lock, 0) as pid:
            assert pid is None
            assert holder(lock) == os.getpid()


def test_a_lock_that_nobody_holds(lock: Path) -> None:
    assert end_holder(lock, 1.0) is None
    lock.write_text("1\n")  # the process died without a word: the number in the file is no holder
    assert end_holder(lock, 1.0) is None


@pytest.mark.parametrize("stopped", [False, True])
def test_the_holder_is_ended(lock: Path, held_by: Holds, stopped: bool) -> None:
    pid = held_by()
    if stopped:
        os.kill(pid, signal.SIGSTOP)
    assert end_holder(lock, 20.0) == pid
    assert holder(lock) is None


def test_one_that_does_not_end_is_named(lock: Path, held_by: Holds) -> None:
    pid = held_by("deaf")
    with pytest.raises(RunError, match=rf"process {pid} .* 0\.1 s"):
        end_holder(lock, 0.1)


def test_a_process_that_has_the_number_but_not_the_lock_is_left_alone(lock: Path, held_by: Holds) -> None:
    with subprocess.Popen(["sleep", "60"]) as bystander:
        try:
            with hold_lock(lock, 0):
                lock.write_text(f"{bystander.pid}\n")
                with pytest.raises(RunError, match=f"process {bystander.pid} is said to hold it, but does not"):
                    end_holder(lock, 1.0)
            assert bystander.poll() is None
        finally:
            bystander.kill()


def test_a_holder_that_cannot_be_seen_from_here(lock: Path) -> None:
    with hold_lock(lock, 0):
        lock.write_text(f"{1 << 22}\n")  # beyond the largest pid there is
        with pytest.raises(RunError, match="not on this machine"):
            end_holder(lock, 1.0)
