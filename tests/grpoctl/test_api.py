"""`grpoctl.load`: a run as Python sees it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import grpoctl
from core.errors import NotFoundError
from grpoctl.api import LoadedRun, LoadedStudy
from grpoctl.config import read_resolved
from grpoctl.runs.run_dir import Home
from tests.conftest import Recorded
from tests.promotable import WINNER, K, ended_study, swept


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


def test_a_study_has_its_document_and_its_trials_with_their_runs(home: Home) -> None:
    made = ended_study(home, swept("advantage-study", "tiny"), [{**WINNER, K: 8}, WINNER])
    for name in ("advantage-study", made.id, str(made.path), made.id[:20]):
        study = grpoctl.load(name)
        assert isinstance(study, LoadedStudy)
        assert study.study == made
    assert study.spec == swept("advantage-study", "tiny")
    assert (study.document["status"], study.document["best"]["number"]) == ("COMPLETED", 1)
    first, second = study.trials
    assert (first.number, first.status, first.score, first.params[K]) == (0, "COMPLETED", 0.5, 8)
    assert second.values == (0.6,) * len(study.spec.seeds)
    (run,) = second.runs  # of the one seed whose directory is there
    assert (run.run, run.spec.stages["grpo"].num_generations) == (made.run(1, 0), 4)  # type: ignore[union-attr]


def test_a_run_comes_before_a_study_and_one_of_a_study_is_a_run(home: Home, recorded: Recorded) -> None:
    made = ended_study(home, swept("advantage-study", "tiny"))
    assert isinstance(grpoctl.load(made.run(0, 0).id), LoadedRun)
    recorded()
    with pytest.raises(NotFoundError, match="no run 'kl-study'"):
        grpoctl.load("kl-study")
