"""The one mirror of a study, a process beside a process that drives: to the end, killed, resumed, and MLflow away."""

from __future__ import annotations

import contextlib
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
from tests.grpoctl.tracking.stand_in import refusing, silent, stand_in
from tests.grpoctl.tracking.stored import StoredRun, runs_of

pytestmark = pytest.mark.process


@pytest.fixture
def drive(tmp_path: Path) -> Iterator[Any]:
    """Starts fake drivers; ends those that are left, and their mirrors."""
    with contextlib.ExitStack() as stack:
        yield lambda study, uri="": stack.enter_context(stand_in("fake_driver.py", study.path, uri, tmp_path))


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
