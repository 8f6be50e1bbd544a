"""Statuses on disk, and what becomes of those whose process died."""

from __future__ import annotations

import dataclasses
import os
import re
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from core.errors import StorageError
from grpoctl.cli.exits import exit_code
from grpoctl.files import RowWriter, replace_json
from grpoctl.runs import liveness, status
from grpoctl.runs.liveness import DIED
from grpoctl.runs.run_dir import Home, RunDir
from grpoctl.runs.status import Status, StatusRecord
from tests.grpoctl.one_process import outputs

ROOT = Path(__file__).resolve().parents[3]
RUNNING = StatusRecord(status=Status.RUNNING, pid=1, started=10.0)


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    run = Home(path=tmp_path).create_run("a")
    run.spec.write_text("name: a\n")
    return run


@pytest.mark.parametrize("state", Status)
def test_a_status_reads_back(run: RunDir, state: Status) -> None:
    record = StatusRecord(status=state, pid=7, started=0.1 + 0.2, ended=1 / 3, step=5, message="数 it's over\nreally")
    status.write(run.status, record)
    assert status.read(run.status) == record


@pytest.mark.parametrize("state", [state for state in Status if state.ended])
def test_every_ending_has_an_exit_code(state: Status) -> None:
    assert exit_code(state) in (0, 3, 4, 130)


def test_no_status_yet(run: RunDir) -> None:
    assert status.read(run.status) is None


@pytest.mark.parametrize(
    ("content", "message"),
    [('{"schema": 1', "damaged"), ('{"schema": 1}', "damaged"), ('{"schema": 2}', "schema 2")],
)
def test_a_status_that_cannot_be_read_is_named(run: RunDir, content: str, message: str) -> None:
    run.status.write_text(content)
    with pytest.raises(StorageError, match=rf"status\.json: {message}"):
        status.read(run.status)


def test_a_run_without_its_process_is_interrupted(run: RunDir) -> None:
    status.write(run.status, RUNNING)
    with RowWriter(run.metrics) as writer:
        writer.append({"step": 1}, {"step": 2})
    os.utime(run.metrics, (5000.0, 5000.0))
    os.utime(run.status, (4000.0, 4000.0))
    assert liveness.reconcile(run.home) == [run]
    record = status.read(run.status)
    assert record == StatusRecord(
        status=Status.INTERRUPTED, pid=1, started=10.0, ended=5000.0, step=2, message=DIED
    )  # ended: its last sign of life, not when somebody looked
    assert liveness.reconcile(run.home) == []


def test_a_held_run_is_left_alone(run: RunDir) -> None:
    status.write(run.status, RUNNING)
    with run.hold():
        assert liveness.reconcile(run.home) == []
    assert status.read(run.status) == RUNNING


@pytest.mark.parametrize("state", [state for state in Status if state.ended])
def test_an_ending_is_left_alone(run: RunDir, state: Status) -> None:
    record = StatusRecord(status=state, pid=1, started=10.0, ended=11.0)
    status.write(run.status, record)
    assert liveness.reconcile(run.home) == []
    assert status.read(run.status) == record


def test_one_damaged_status_does_not_keep_the_others_back(run: RunDir) -> None:
    other = run.home.create_run("b")
    other.spec.write_text("name: b\n")
    status.write(other.status, RUNNING)
    replace_json(run.status, {"schema": 99})
    assert liveness.reconcile(run.home) == [other]


HOLDER = """
import os, subprocess, sys, time
from pathlib import Path
from grpoctl.runs import status
from grpoctl.runs.run_dir import RunDir
run = RunDir(path=Path(sys.argv[1]))
with run.hold():
    status.write(run.status, status.StatusRecord(status=status.Status.RUNNING, pid=os.getpid(), started=1.0))
    if sys.argv[2] == "popen":
        print(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]).pid, flush=True)
    elif os.fork() == 0:
        print(os.getpid(), flush=True)  # by itself: it may be a while until it begins
    time.sleep(60)
"""


@pytest.mark.process
@pytest.mark.parametrize("start", ["popen", "fork"])
def test_a_killed_process_lets_go_though_its_child_lives(run: RunDir, start: str) -> None:
    command = [sys.executable, "-c", HOLDER, str(run.path), start]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        child = int(holder.stdout.readline())
        try:
            assert run.is_held()
            assert liveness.reconcile(run.home) == []
            holder.send_signal(signal.SIGKILL)
            holder.wait()
            os.kill(child, 0)  # it lives
            assert not run.is_held()
            assert liveness.reconcile(run.home) == [run]
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_run_never_ended_before_it_started(run: RunDir) -> None:
    status.write(run.status, dataclasses.replace(RUNNING, started=5000.0))
    os.utime(run.status, (4000.0, 4000.0))
    liveness.reconcile(run.home)
    record = status.read(run.status)
    assert record is not None
    assert (record.status, record.started, record.ended) == (Status.INTERRUPTED, 5000.0, 5000.0)


@pytest.mark.process
def test_a_dead_run_is_interrupted_though_that_cannot_be_written_down(run: RunDir) -> None:
    """A process is killed and the disk takes no byte more: no file may grow above 0 bytes; pipes may."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(run.path), "popen"], cwd=ROOT, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        os.kill(int(holder.stdout.readline()), signal.SIGKILL)
        assert _told_on_a_full_disk(run) == ["RUNNING"] * 4
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    before = run.status.read_bytes()
    assert _told_on_a_full_disk(run) == ["INTERRUPTED"] * 4
    assert run.status.read_bytes() == before


def _told_on_a_full_disk(run: RunDir) -> list[str]:
    """What `ls` and `show` say of the run, as words and as JSON."""
    commands = [f"{command}{form}" for command in ("ls", f"show {run.id}") for form in ("", " --json")]
    shown = outputs(
        commands,
        run.path,
        before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)),
        GRPOCTL_HOME=str(run.home.path),
    )
    return [word for text in shown for word in set(re.findall("RUNNING|INTERRUPTED", text))]
