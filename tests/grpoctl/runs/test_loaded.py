"""`grpoctl.load`: a run as Python sees it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import grpoctl
from core.errors import NotFoundError
from grpoctl.runs.run_dir import Home
from grpoctl.specs import read_resolved
from tests.conftest import Recorded


@pytest.fixture(autouse=True)
def _in_the_folder_of_the_home(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRPOCTL_HOME", raising=False)
    home.path.mkdir()
    monkeypatch.chdir(home.path.parent)


def test_an_experiment_is_its_newest_run(recorded: Recorded) -> None:
    recorded(seed=1)
    newest = recorded(seed=2)
    for name in ("p31", "P31", newest.id, newest.id.upper(), str(newest.path), os.path.relpath(newest.path)):
        run = grpoctl.load(name)
        assert run.run.id == newest.id
        assert run.spec == read_resolved(newest.spec)
        assert run.spec.seed == run.result["seed"] == 2


def test_the_metrics_are_a_table_over_steps(recorded: Recorded) -> None:
    recorded(steps=3)
    frame = grpoctl.load("p31").metrics
    assert frame.index.name == "step"
    assert list(frame.index) == [0, 1, 2, 3]
    assert list(frame["reward/mean"].dropna()) == [0.1, 0.2, 0.3]
    assert list(frame["eval/reward"].dropna()) == [0.5]


def test_a_run_without_steps_has_an_empty_table(recorded: Recorded) -> None:
    recorded(steps=0).metrics.unlink()
    assert grpoctl.load("p31").metrics.empty


def test_a_run_that_has_not_ended_has_no_result(recorded: Recorded) -> None:
    recorded(ended="RUNNING")
    with pytest.raises(NotFoundError, match="has not ended"):
        _ = grpoctl.load("p31").result


def test_a_run_that_is_not_there_names_the_nearest(recorded: Recorded) -> None:
    recorded()
    with pytest.raises(NotFoundError, match="did you mean 'p31'"):
        grpoctl.load("p13")


def test_a_folder_with_capitals_is_a_path(recorded: Recorded, tmp_path: Path) -> None:
    run = recorded()
    run.path.rename(tmp_path / "Copy")
    assert grpoctl.load("Copy").result["run_id"] == run.id
