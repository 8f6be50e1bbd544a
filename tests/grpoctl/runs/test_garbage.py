"""What can go from a home: never a best or last checkpoint, nothing of what goes on or may go on."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from core.errors import BusyError
from grpoctl.files import replace_json
from grpoctl.runs import garbage, status
from grpoctl.runs.run_dir import Home, RunDir
from grpoctl.runs.status import Status, StatusRecord
from tests.conftest import Recorded

DEAD = 2**22 + 1  # no process has such a number


def checkpoint(run: RunDir, step: int, best: int | None, *, size: int = 10_000) -> Path:
    folder = run.checkpoints / f"step-{step:06d}"
    folder.mkdir(parents=True)
    (folder / "weights.safetensors").write_bytes(b"x" * size)
    (folder / "state.json").write_text(json.dumps({"progress": {"step": step, "best_step": best}}))
    return folder


def found(home: Home) -> dict[str, str]:
    return {one.path.name: one.kind for one in garbage.find(home)}


def test_of_an_ended_run_only_checkpoints_between_the_best_and_the_last_go(home: Home, recorded: Recorded) -> None:
    run = recorded()  # its result says that step 1 was the best
    for step in (1, 5, 10, 20):
        checkpoint(run, step, best=1)
    (one, other) = garbage.find(home)
    assert [one.path.name, other.path.name] == ["step-000005", "step-000010"]
    assert one.kind == "checkpoint"
    assert one.size >= 10_000
    garbage.remove(one)
    garbage.remove(other)
    assert sorted(path.name for path in run.checkpoints.iterdir()) == ["step-000001", "step-000020"]
    assert garbage.find(home) == []


@pytest.mark.parametrize("ended", ["INTERRUPTED", "FAILED", "RUNNING"])
def test_nothing_goes_of_a_run_that_may_go_on(home: Home, recorded: Recorded, ended: str) -> None:
    run = recorded(ended=ended)
    for step in (1, 5, 10):
        checkpoint(run, step, best=1)
    (run.checkpoints / "writing-step-000020").mkdir()
    assert garbage.find(home) == []


def test_nothing_goes_where_the_last_checkpoint_does_not_say_which_was_best(home: Home, recorded: Recorded) -> None:
    run = recorded()
    for step in (1, 5, 10):
        checkpoint(run, step, best=1)
    (run.checkpoints / "step-000010" / "state.json").write_text("{")
    assert garbage.find(home) == []


def test_a_run_in_use_keeps_everything(home: Home, recorded: Recorded) -> None:
    run = recorded()
    for step in (1, 5, 10):
        checkpoint(run, step, best=1)
    (one,) = garbage.find(home)
    with run.hold():
        assert garbage.find(home) == []
        with pytest.raises(BusyError):
            garbage.remove(one)
    assert one.path.is_dir()


def test_what_killed_processes_left(home: Home, recorded: Recorded) -> None:
    run = recorded()
    checkpoint(run, 1, best=1)
    (run.checkpoints / "writing-step-000002").mkdir()
    (run.checkpoints / ".removing-step-000003").mkdir()  # a gc that was killed
    (run.path / f".result.json.{DEAD}.tmp").write_text("{")
    (run.path / f".status.json.{os.getpid()}.tmp").write_text("{")  # somebody is at it
    (run.path / "problems.jsonl").write_text("{}\n")
    run.problems.write_bytes(b"PAR1")
    assert found(home) == {
        "writing-step-000002": "unfinished write",
        ".removing-step-000003": "unfinished write",
        f".result.json.{DEAD}.tmp": "unfinished write",
        "problems.jsonl": "rows kept twice",
    }
    for one in garbage.find(home):
        garbage.remove(one)
    assert garbage.find(home) == []
    assert run.problems.exists()


def test_a_file_with_another_name_frees_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    (folder / "weights").write_bytes(b"x" * 50_000)
    assert garbage.size_of(folder) >= 50_000
    os.link(folder / "weights", tmp_path / "elsewhere")
    assert garbage.size_of(folder) == 0
    os.link(folder / "weights", folder / "again")
    (tmp_path / "elsewhere").unlink()
    assert 50_000 <= garbage.size_of(folder) < 100_000  # both its names go, and it is counted once


@pytest.mark.parametrize(("stands", "kept"), [("COMPLETED", False), ("INTERRUPTED", True), ("STOPPED", True)])
def test_what_a_study_shares_goes_when_it_is_completed(home: Home, stands: str, kept: bool) -> None:
    study = home.path / "sweeps" / "lr-study-tiny-abc-1"
    (study / "prefixes" / ("a" * 64)).mkdir(parents=True)
    (study / "sweep.yaml").write_text("name: lr-study\n")
    replace_json(study / "sweep.json", {"status": stands, "message": "", "trials": []})
    (study / "runs" / "t0000-s0.damaged-1").mkdir(parents=True)
    kinds = {"t0000-s0.damaged-1": "damaged run"} | ({} if kept else {"prefixes": "shared stage"})
    assert found(home) == kinds


def test_a_store_from_before_a_migration_goes(home: Home, recorded: Recorded) -> None:
    recorded()
    (home.path / "mlflow.db.before-migration").write_bytes(b"x" * 9000)
    (one,) = garbage.find(home)
    assert (one.kind, one.owner) == ("old MLflow store", None)
    garbage.remove(one)
    assert not one.path.exists()


def test_a_status_that_cannot_be_read_keeps_everything(home: Home, recorded: Recorded) -> None:
    run = recorded()
    for step in (1, 5, 10):
        checkpoint(run, step, best=1)
    status.write(run.status, StatusRecord(status=Status.COMPLETED, pid=1, started=0.0, ended=1.0, step=1, message=""))
    assert len(garbage.find(home)) == 1
    run.status.write_text("{")
    assert garbage.find(home) == []
