"""A program and everything it started end with the run, however the run ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from grpoctl.children import child_environment, python_module
from grpoctl.executors.supervisor import NOT_STARTED
from tests.end_to_end.cli import eventually

pytestmark = pytest.mark.process

# Ignores SIGTERM, and so does its child; a grandchild has left for a session of its own.
STUBBORN = """
import os, pathlib, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
folder = pathlib.Path(sys.argv[1])
ignoring = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
child = subprocess.Popen([sys.executable, "-c", ignoring])
away = subprocess.Popen([sys.executable, "-c", ignoring], start_new_session=True)
(folder / "pids").write_text(f"{os.getpid()} {child.pid} {away.pid}")
if sys.argv[2] == "leave":
    os._exit(0)
time.sleep(600)
"""


def alive(pid: int) -> bool:
    with suppress(OSError):
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def start(*command: str, grace: str = "0.2") -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        python_module("grpoctl.executors.supervisor", grace, *command),
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=child_environment(),
        start_new_session=True,
    )


@pytest.fixture
def pids(tmp_path: Path) -> Iterator[list[int]]:
    """Those that a stubborn program wrote down, once it has; all of them are ended in the end."""
    known: list[int] = []
    yield known
    for pid in known:
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def stubborn(folder: Path, known: list[int], mode: str = "stay") -> subprocess.Popen[bytes]:
    started = start(sys.executable, "-c", STUBBORN, str(folder), mode)
    eventually(lambda: (folder / "pids").exists() and (folder / "pids").read_text(), "the program is there")
    known += map(int, (folder / "pids").read_text().split())
    return started


def test_a_hanging_program_is_ended_with_its_children(tmp_path: Path, pids: list[int]) -> None:
    started = stubborn(tmp_path, pids)
    assert started.stdin is not None
    started.stdin.close()
    assert started.wait(30) == 128 + signal.SIGKILL
    eventually(lambda: not any(map(alive, pids)), "all of them are gone")


def test_it_is_ended_when_the_process_of_its_run_is_killed(tmp_path: Path, pids: list[int]) -> None:
    """A process that holds the other end of the pipe, as a run does, and is killed for real."""
    holder = (
        "import subprocess, sys\n"
        "started = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, start_new_session=True)\n"
        "started.wait()\n"
    )
    module = python_module("grpoctl.executors.supervisor", "0.2", sys.executable, "-c", STUBBORN, str(tmp_path), "stay")
    run = subprocess.Popen([sys.executable, "-c", holder, *module], env=child_environment())
    eventually(lambda: (tmp_path / "pids").exists() and (tmp_path / "pids").read_text(), "the program is there")
    pids += map(int, (tmp_path / "pids").read_text().split())
    run.kill()
    run.wait()
    eventually(lambda: not any(map(alive, pids)), "all of them are gone")


def test_what_a_program_leaves_behind_is_ended_with_it(tmp_path: Path, pids: list[int]) -> None:
    started = stubborn(tmp_path, pids, "leave")
    assert started.wait(30) == 0
    eventually(lambda: not any(map(alive, pids)), "all of them are gone")


@pytest.mark.parametrize(
    ("program", "code"),
    [("raise SystemExit(7)", 7), ("import os, signal; os.kill(os.getpid(), signal.SIGABRT)", 128 + signal.SIGABRT)],
)
def test_the_exit_code_is_the_programs(program: str, code: int) -> None:
    started = start(sys.executable, "-c", program)
    assert started.wait(30) == code


def test_a_program_that_is_not_there_is_named() -> None:
    started = start("no-such-program-at-all")
    _, said = started.communicate(timeout=30)
    assert started.returncode == NOT_STARTED
    assert b"no-such-program-at-all" in said
