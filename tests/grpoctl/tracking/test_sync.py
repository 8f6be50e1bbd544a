"""Catching up with what MLflow missed."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import pytest

from core.errors import StorageError
from grpoctl.runs import status
from grpoctl.runs.locks import hold_lock
from grpoctl.runs.run_dir import Home
from grpoctl.runs.status import Status
from grpoctl.tracking.mirror_state import read_state, write_state
from grpoctl.tracking.store import open_client
from grpoctl.tracking.sync import sync
from grpoctl.tracking.writer import RunWriter
from tests.grpoctl.tracking.stored import history, runs_of


def ended(run: Any, state: Status = Status.COMPLETED) -> Any:
    run.rows(0, 3)
    run.say(state)
    return run.dir


def test_what_is_missing_is_written_once(home: Home, new_run: Any, losses: Any) -> None:
    runs = [ended(new_run(name)) for name in ("p30", "p31")]
    assert set(sync(home).of("written")) == {run.id for run in runs}
    assert set(sync(home).of("unchanged")) == {run.id for run in runs}
    assert sorted(stored.name for stored in runs_of(home)) == sorted(run.id for run in runs)
    assert [history(home, stored.mlflow_run_id, "loss") for stored in runs_of(home)] == [losses(0, 1, 3)] * 2


def test_only_the_runs_asked_for(home: Home, new_run: Any) -> None:
    first, second = ended(new_run("p30")), ended(new_run("p31"))
    assert [entry.run_id for entry in sync(home, [second]).runs] == [second.id]
    assert read_state(first) is None


def test_a_run_whose_process_died_is_killed_in_mlflow(home: Home, run: Any) -> None:
    run.rows(0, 3)
    RunWriter(run.dir, open_client(home)).catch_up()
    assert [stored.status for stored in runs_of(home)] == ["RUNNING"]
    assert sync(home).of("written") == (run.dir.id,)
    assert [stored.status for stored in runs_of(home)] == ["KILLED"]
    record = status.read(run.dir.status)
    assert record is not None
    assert record.status is Status.INTERRUPTED


def test_a_run_resumed_without_a_mirror_is_written_again(home: Home, run: Any, losses: Any) -> None:
    ended(run, Status.INTERRUPTED)
    sync(home)
    run.rows(4, 6)
    run.say(Status.COMPLETED)
    assert sync(home).of("written") == (run.dir.id,)
    (stored,) = runs_of(home)
    assert (stored.status, history(home, stored.mlflow_run_id, "loss")) == ("FINISHED", losses(*range(7)))


def test_a_run_with_a_mirror_at_work_is_left_to_it(home: Home, run: Any) -> None:
    run.rows(0, 3)
    with run.dir.hold(), hold_lock(run.dir.mirror_lock, patience=0):
        assert sync(home).of("live") == (run.dir.id,)
    assert runs_of(home) == []


def test_a_store_that_was_thrown_away_is_filled_again(home: Home, run: Any, store_template: Home) -> None:
    ended(run)
    sync(home)
    shutil.copy(store_template.mlflow_store, home.mlflow_store)  # another file of the same name
    assert sync(home).of("written") == (run.dir.id,)
    assert [stored.status for stored in runs_of(home)] == ["FINISHED"]


def test_two_stores_each_have_it_once(
    home: Home, run: Any, store_template: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(store_template.mlflow_store, tmp_path / "other.db")
    ended(run)
    for uri in ("", f"sqlite:///{tmp_path}/other.db", ""):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        assert sync(home).of("written") == (run.dir.id,)
        (stored,) = runs_of(home)
        assert (stored.name, stored.status) == (run.dir.id, "FINISHED")
        assert str(home.mlflow_artifacts) in stored.artifact_uri


def test_a_run_deleted_in_mlflow_is_not_brought_back(home: Home, run: Any) -> None:
    ended(run)
    sync(home)
    state = read_state(run.dir)
    assert state is not None
    client = open_client(home)
    client.delete_run(str(state.mlflow_run_id))
    assert [sync(home).runs[0].outcome for _ in range(2)] == ["written", "unchanged"]  # noted, then known
    assert runs_of(home) == []
    client.restore_run(str(state.mlflow_run_id))
    assert [sync(home).runs[0].outcome for _ in range(2)] == ["written", "unchanged"]
    assert len(runs_of(home)) == 1


def test_one_damaged_run_does_not_keep_the_others_back(home: Home, new_run: Any) -> None:
    bad, good = ended(new_run("p30")), ended(new_run("p31"))
    bad.spec.write_text("a: [")
    report = sync(home)
    assert (report.of("behind"), report.of("written")) == ((bad.id,), (good.id,))
    (entry,) = [entry for entry in report.runs if entry.outcome == "behind"]
    assert "spec.yaml: damaged" in str(entry.error)
    state = read_state(bad)
    assert state is not None
    assert (state.state, state.error) == ("behind", entry.error)


def test_a_run_noted_as_behind_is_done_afterwards(home: Home, run: Any) -> None:
    ended(run)
    sync(home)
    state = read_state(run.dir)
    assert state is not None
    write_state(run.dir, dataclasses.replace(state, state="behind", error="was away"))
    assert sync(home).of("written") == (run.dir.id,)
    assert read_state(run.dir) == state


def test_a_store_that_cannot_be_reached_is_one_line_without_its_password(
    home: Home, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended(run)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:hunter2@127.0.0.1:9")  # the discard port: nobody listens
    with pytest.raises(StorageError, match=r"^MLflow at http://\*\*\*@127.0.0.1:9 cannot be used [^\n]+$") as caught:
        sync(home)
    assert "hunter2" not in str(caught.value)


def outcomes(home: Home) -> dict[str, str]:
    return {entry.run_id: entry.outcome for entry in sync(home).runs}


def test_a_study_and_its_runs_are_written_once(home: Home, run: Any, study: Any) -> None:
    alone = ended(run)
    runs = [*study.ended(0), *study.ended(1)]
    study.say("COMPLETED")
    everything = {alone.id, study.dir.id, *(one.id for one in runs)}
    assert outcomes(home) == dict.fromkeys(everything, "written")
    assert outcomes(home) == dict.fromkeys(everything, "unchanged")
    assert len(runs_of(home)) == 5


def test_a_figure_drawn_later_is_sent(home: Home, study: Any) -> None:
    study.ended(0)
    study.say("COMPLETED")
    sync(home)
    study.dir.figures.mkdir()
    (study.dir.figures / "late.png").write_bytes(b"late")
    assert sync(home).of("written") == (study.dir.id,)
    assert len(list(home.mlflow_artifacts.rglob("late.png"))) == 1
    assert sync(home).of("written") == ()


def test_a_study_in_a_store_that_was_thrown_away_is_written_again(home: Home, study: Any, store_template: Home) -> None:
    runs = study.ended(0)
    study.say("COMPLETED")
    sync(home)
    shutil.copy(store_template.mlflow_store, home.mlflow_store)
    assert set(sync(home).of("written")) == {study.dir.id, *(one.id for one in runs)}
    assert {stored.name for stored in runs_of(home)} == {one.id for one in runs}


def test_one_run_of_a_study_that_the_store_lost_is_written_again(home: Home, study: Any) -> None:
    first, _ = study.ended(0)
    study.say("COMPLETED")
    sync(home)
    state = read_state(first)
    assert state is not None
    write_state(first, dataclasses.replace(state, mlflow_run_id="f" * 32))
    assert set(sync(home).of("written")) == {study.dir.id, first.id}
    assert len(runs_of(home)) == 2  # found by its token


def test_a_study_whose_mirror_is_at_work_is_left_to_it(home: Home, study: Any) -> None:
    study.ended(0)
    with study.dir.hold(), hold_lock(study.dir.mirror_lock, patience=0):
        assert outcomes(home) == {study.dir.id: "live"}
    assert runs_of(home) == []


def test_a_damaged_study_does_not_keep_the_others_back(home: Home, run: Any, study: Any) -> None:
    alone = ended(run)
    study.ended(0)
    study.dir.state.write_text("{")
    report = sync(home)
    assert (report.of("written"), report.of("behind")) == ((alone.id,), (study.dir.id,))
    assert "sweep.json" in str(report.runs[-1].error)
