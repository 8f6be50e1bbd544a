"""The one mirror of a study, a process beside a process that drives: to the end, killed, resumed, and MLflow away."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from grpoctl.runs import status
from grpoctl.runs.run_dir import Home
from grpoctl.runs.study_dir import StudyDir
from grpoctl.tracking.mirror_state import MirrorState, read_state
from grpoctl.tracking.payload import PARENT_TAG
from grpoctl.tracking.store import open_client
from grpoctl.tracking.sync import sync
from tests.grpoctl.tracking.stored import StoredRun, runs_of

ROOT = Path(__file__).resolve().parents[3]
FAKE_DRIVER = Path(__file__).with_name("fake_driver.py")

pytestmark = pytest.mark.process


class Driver:
    """A fake driver under way; `say` gives it one command and returns its answer."""

    def __init__(self, study: StudyDir, uri: str) -> None:
        settings = {"MLFLOW_TRACKING_URI": uri, "MLFLOW_HTTP_REQUEST_TIMEOUT": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-P", str(FAKE_DRIVER), str(study.path)],
            env={**os.environ, "PYTHONPATH": str(ROOT), **settings},
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self.mirror = int(self._answer()[1])

    def say(self, command: str) -> list[str]:
        assert self.process.stdin is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self._answer()

    def wait(self, seconds: int = 60) -> tuple[float, str, str]:
        """(seconds it took, state, error) of waiting for the mirror."""
        _, took, state, *error = self.say(f"wait {seconds}")
        return float(took), state, " ".join(error)

    def _answer(self) -> list[str]:
        assert self.process.stdout is not None
        return self.process.stdout.readline().split()


@pytest.fixture
def drive() -> Iterator[Any]:
    """Starts fake drivers; ends those that are left, and their mirrors."""
    with contextlib.ExitStack() as stack:

        def start(study: StudyDir, uri: str = "") -> Driver:
            driver = Driver(study, uri)
            stack.callback(_end, driver)
            return driver

        yield start


def _end(driver: Driver) -> None:
    for pid in (driver.mirror, driver.process.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    driver.process.communicate()


def state_of(study: StudyDir) -> MirrorState:
    return read_state(study) or MirrorState()


def children(home: Home, study: StudyDir) -> list[StoredRun]:
    return [stored for stored in runs_of(home) if stored.tags.get(PARENT_TAG) == state_of(study).mlflow_run_id]


def parent_status(study: StudyDir) -> str:
    return str(open_client(study.home).get_run(str(state_of(study).mlflow_run_id)).info.status)


def test_a_study_is_followed_to_its_end_by_one_process(home: Home, study: Any, drive: Any, eventually: Any) -> None:
    driver = drive(study.dir)
    driver.say("trial 0")
    eventually(lambda: state_of(study.dir).synced_step == 0, seconds=60)
    assert parent_status(study.dir) == "RUNNING"
    driver.say("trial 1")
    driver.say("end COMPLETED")
    assert driver.wait()[1:] == ("done", "None")
    assert parent_status(study.dir) == "FINISHED"
    assert [stored.status for stored in children(home, study.dir)] == ["FINISHED"] * 4
    assert study.dir.mirror_log.read_text() == ""
    assert not [run for run in study.dir.runs() if run.mirror_log.exists()]
    assert set(sync(home).of("unchanged")) == {study.dir.id, *(run.id for run in study.dir.runs())}


def test_a_killed_driver_is_told_and_its_resumed_study_goes_on_as_the_same(
    home: Home, study: Any, drive: Any, eventually: Any
) -> None:
    driver = drive(study.dir)
    driver.say("trial 0")
    driver.say("start 1")
    eventually(lambda: state_of(study.dir).synced_step == 0, seconds=60)
    driver.process.kill()
    eventually(lambda: state_of(study.dir).done, seconds=60)
    assert state_of(study.dir).synced_status == "INTERRUPTED"
    assert parent_status(study.dir) == "KILLED"
    assert sorted(stored.status for stored in children(home, study.dir)) == ["FINISHED", "FINISHED", "KILLED"]
    record = status.read(study.dir.run(1, 0).status)
    assert record is not None
    assert record.status.value == "INTERRUPTED"
    before = state_of(study.dir).mlflow_run_id
    resumed = drive(study.dir)
    resumed.say("trial 2")
    resumed.say("end COMPLETED")
    assert resumed.wait()[1] == "done"
    assert state_of(study.dir).mlflow_run_id == before
    assert parent_status(study.dir) == "FINISHED"
    assert len(children(home, study.dir)) == 5


@contextlib.contextmanager
def refusing() -> Iterator[int]:
    with socket.socket() as listener:  # bound, so that nobody else gets the port, but not listening
        listener.bind(("127.0.0.1", 0))
        yield listener.getsockname()[1]


@contextlib.contextmanager
def silent() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:  # the kernel accepts, nobody answers
        yield listener.getsockname()[1]


@pytest.mark.parametrize("server", [refusing, pytest.param(silent, marks=pytest.mark.slow)])
def test_a_server_that_is_away_does_not_hold_up_the_sweep_and_sync_catches_up(
    home: Home, study: Any, drive: Any, eventually: Any, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with server() as port:
        driver = drive(study.dir, f"http://me:hunter2@127.0.0.1:{port}")
        eventually(lambda: state_of(study.dir).state == "behind", seconds=60)
        assert float(driver.say("trial 0")[1]) < 0.5
        driver.say("end COMPLETED")
        _, state, error = driver.wait()
    assert state == "behind"
    assert f"127.0.0.1:{port}" in error
    assert "hunter2" not in study.dir.mlflow.read_text() + study.dir.mirror_log.read_text() + error
    driver.process.kill()
    driver.process.wait()
    runs = {run.id for run in study.dir.runs()}
    assert set(sync(home).of("written")) == {study.dir.id, *runs}
    assert {stored.name for stored in children(home, study.dir)} == runs
    assert parent_status(study.dir) == "FINISHED"
