"""`grpoctl.load`: runs, experiments and studies as Python sees them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import grpoctl
from core.errors import NotFoundError, UserError
from grpoctl.api import LoadedExperiment, LoadedRun, LoadedStudy
from grpoctl.config import read_resolved
from grpoctl.runs.run_dir import Home
from tests.conftest import Recorded
from tests.promotable import WINNER, K, ended_study, swept


@pytest.fixture(autouse=True)
def _in_the_folder_of_the_home(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRPOCTL_HOME", raising=False)
    home.path.mkdir()
    monkeypatch.chdir(home.path.parent)


def test_a_run_is_found_by_id_and_directory_and_an_experiment_has_its_newest(recorded: Recorded) -> None:
    recorded(seed=1)
    newest = recorded(seed=2)
    for name in (newest.id, newest.id.upper(), str(newest.path), os.path.relpath(newest.path), newest.path):
        run = grpoctl.load(name)
        assert isinstance(run, LoadedRun)
        assert (run.id, run.status) == (newest.id, "COMPLETED")
        assert run.spec == read_resolved(newest.spec)
        assert run.spec.seed == run.result["seed"] == 2
    assert grpoctl.load("p31", "run").id == newest.id


def test_an_experiment_has_the_finished_runs_of_its_spec_one_per_seed(recorded: Recorded) -> None:
    recorded(seed=1)
    again = recorded(seed=1)
    recorded(seed=0, ended="INTERRUPTED")
    second = recorded(seed=2)
    recorded(seed=3, learning_rate=5e-3)  # not what the file says
    for name in ("p31", "P31", "p31@2"):
        experiment = grpoctl.load(name)
        assert isinstance(experiment, LoadedExperiment)
        assert [run.id for run in experiment.runs] == [again.id, second.id]
        assert (experiment.name, experiment.seeds) == ("p31", (1, 2))
    assert experiment.spec.model_copy(update={"seed": 1}) == read_resolved(again.spec)
    assert list(experiment.metrics["seed"]) == [1] * 4 + [2] * 4
    assert list(experiment.metrics.index) == [0, 1, 2, 3] * 2
    assert list(experiment.samples["seed"].unique()) == [1, 2]
    assert experiment.problems is not None
    assert next(iter(experiment.problems)) == "seed"
    assert experiment.findings == {again.id: (), second.id: ()}


def test_an_experiment_made_by_overrides_goes_by_its_hash(recorded: Recorded) -> None:
    recorded(seed=0)
    changed = [recorded(seed=seed, learning_rate=5e-3) for seed in (0, 1)]
    sha = changed[0].id.split("-")[-2]
    for name in (sha, f"p31-{sha}", f"p31-tiny-{sha}", sha[:6]):
        experiment = grpoctl.load(name)
        assert isinstance(experiment, LoadedExperiment)
        assert [run.id for run in experiment.runs] == [run.id for run in changed]
    with pytest.raises(NotFoundError):
        grpoctl.load(f"p30-{sha}")


def test_an_experiment_without_runs_is_what_would_run() -> None:
    experiment = grpoctl.load("p31", "experiment")
    assert (experiment.runs, experiment.spec.profile) == ((), "tiny")
    assert experiment.metrics.empty
    with pytest.raises(NotFoundError, match="no run of p31 has ended"):
        _ = experiment.result
    assert grpoctl.load("p31") == experiment


def test_a_home_can_be_named(recorded: Recorded, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = recorded()
    monkeypatch.setenv("GRPOCTL_HOME", str(tmp_path / "elsewhere"))
    assert grpoctl.load(run.id, home=home.path).path == run.path
    with pytest.raises(NotFoundError):
        grpoctl.load(run.id)


def test_the_metrics_are_a_table_over_steps(recorded: Recorded) -> None:
    recorded(steps=3)
    frame = grpoctl.load("p31", "run").metrics
    assert frame.index.name == "step"
    assert list(frame.index) == [0, 1, 2, 3]
    assert list(frame["reward/mean"].dropna()) == [0.1, 0.2, 0.3]
    assert list(frame["eval/reward"].dropna()) == [0.5]
    samples = grpoctl.load("p31", "run").samples
    assert list(samples.index) == [1, 1, 2, 2, 3, 3]
    assert list(samples["reward"]) == [0.0, 0.1] * 3


def test_a_run_without_steps_has_an_empty_table(recorded: Recorded) -> None:
    recorded(steps=0).metrics.unlink()
    assert grpoctl.load("p31", "run").metrics.empty


def test_a_run_that_has_not_ended_has_no_result(recorded: Recorded) -> None:
    recorded(ended="RUNNING")
    with pytest.raises(NotFoundError, match="has not ended"):
        _ = grpoctl.load("p31", "run").result


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
    with pytest.raises(NotFoundError, match="no run 'kl-studie'"):
        grpoctl.load("kl-studie")
    with pytest.raises(NotFoundError, match="grpoctl sweep kl-study"):
        grpoctl.load("kl-study")  # a sweep's name, which has no study yet


@pytest.mark.parametrize("name", ["", None, 3, b"p31"])
@pytest.mark.parametrize("kind", [None, "run", "study", "experiment"])
def test_what_is_no_name_is_refused(home: Home, name: Any, kind: Any) -> None:
    ended_study(home, swept("advantage-study", "tiny"))  # the only study: every id begins with an empty name
    with pytest.raises(UserError, match="name="):
        grpoctl.load(name, kind)


def test_problems_of_a_program_that_records_none_are_none(recorded: Recorded) -> None:
    ours, other = recorded(seed=0), recorded(seed=1, **{"trainer.kind": "command", "trainer.command": "train {out}"})
    assert grpoctl.load(ours.id, "run").problems is not None
    assert grpoctl.load(other.id, "run").problems is None
