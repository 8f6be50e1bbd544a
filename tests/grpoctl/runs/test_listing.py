"""One line for each run, also for those that are damaged or never started."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpoctl.config import load
from grpoctl.runs.launch import Launch, prepare
from grpoctl.runs.listing import summaries, summary, sweeps
from grpoctl.runs.run_dir import Home
from tests.conftest import Recorded


def test_a_run_in_a_few_words(recorded: Recorded) -> None:
    run = recorded(steps=3, seed=2)
    assert summary(run) == {
        "run_id": run.id,
        "run_dir": str(run.path),
        "experiment": "p31",
        "recorded_as": "p31@2",
        "profile": "tiny",
        "seed": 2,
        "overrides": [],
        "status": "COMPLETED",
        "step": 3,
        "message": "",
        "eval/reward": 0.6,
    }


def test_the_newest_run_comes_first(recorded: Recorded, home: Home) -> None:
    runs = [recorded(seed=seed) for seed in (1, 3, 2)]  # started at 1001, 1003 and 1002
    assert [entry["run_id"] for entry in summaries(home)] == [runs[1].id, runs[2].id, runs[0].id]


def test_a_run_that_is_under_way_has_no_reward_yet(recorded: Recorded) -> None:
    run = recorded(ended="RUNNING")
    with run.hold():
        entry = summary(run)
    assert (entry["status"], entry["step"], entry["eval/reward"]) == ("RUNNING", 3, None)
    assert summary(run)["status"] == "INTERRUPTED"


def test_a_run_that_never_started(home: Home) -> None:
    run = prepare(Launch(loaded=load("p31", profile="tiny")), home).run
    entry = summary(run)
    assert (entry["status"], entry["step"], entry["eval/reward"]) == ("INTERRUPTED", 0, None)
    assert "before the first step" in entry["message"]


@pytest.mark.parametrize("name", ["provenance.json", "status.json", "result.json"])
def test_a_damaged_run_is_listed_as_such(recorded: Recorded, home: Home, name: str) -> None:
    sound, damaged = recorded(seed=0), recorded(seed=1)
    (damaged.path / name).write_text("[")
    listed = {entry["run_id"]: entry for entry in summaries(home)}
    assert listed[sound.id]["status"] == "COMPLETED"
    assert (listed[damaged.id]["status"], listed[damaged.id]["step"]) == ("DAMAGED", None)
    assert name in listed[damaged.id]["message"]


def test_sweeps_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shipped = {entry["name"] for entry in sweeps()}
    (tmp_path / "sweeps").mkdir()
    (tmp_path / "sweeps" / "mine.yaml").write_text("name: mine\n")
    (entry,) = [one for one in sweeps() if one["name"] not in shipped]
    assert entry == {"name": "mine", "file": "sweeps/mine.yaml", "origin": "user"}
