"""One study to MLflow: a parent, its runs as children, everything once. In this process, on a real SQLite store."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

import pytest

from grpoctl.config import load, plain
from grpoctl.config.layers import leaves
from grpoctl.files import read_json, replace_json
from grpoctl.runs.launch import prepare_in
from grpoctl.runs.run_dir import Home
from grpoctl.runs.status import Status
from grpoctl.tracking.mirror_state import read_state
from grpoctl.tracking.payload import PARENT_TAG
from grpoctl.tracking.store import open_client
from grpoctl.tracking.sweep_writer import SweepWriter
from grpoctl.tracking.writer import DELETED
from tests.grpoctl.tracking.stored import history, runs_of

if TYPE_CHECKING:
    from mlflow.entities import Run


def new_writer(study: Any) -> SweepWriter:
    """As a new process would have it."""
    return SweepWriter(study.dir, open_client(study.dir.home))


def parents(home: Home) -> list[Run]:
    """The MLflow runs that are studies."""
    client = open_client(home)
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    return [run for run in client.search_runs(experiments) if "grpoctl.sweep" in run.data.tags]


def only(home: Home) -> Run:
    (found,) = parents(home)
    return found


def children(home: Home) -> dict[str, Any]:
    """name -> MLflow run, of each run of a study; a second one of a name is an error."""
    found = [stored for stored in runs_of(home) if "grpoctl.study" in stored.tags]
    assert len({stored.name for stored in found}) == len(found)
    return {stored.name: stored for stored in found}


def folder_of(run: Run) -> Path:
    return Path(unquote(urlparse(run.info.artifact_uri).path))


def test_a_study_is_copied_whole(home: Home, study: Any, losses: Any) -> None:
    first, second = study.ended(0, score=0.5), study.ended(1, Status.COLLAPSED, score=0.0)
    study.dir.figures.mkdir()
    (study.dir.figures / "ranking.png").write_bytes(b"a figure")
    study.say("COMPLETED", "all 2 trials", best={"number": 0})
    state = new_writer(study).catch_up()
    assert (state.state, state.error, state.synced_status) == ("done", None, "COMPLETED")
    assert read_state(study.dir) == state
    parent = only(home)
    assert (parent.info.run_name, parent.info.status) == (study.dir.id, "FINISHED")
    assert (parent.info.start_time, parent.info.end_time) == (1_000_000, 3_000_000)
    tags = {key.removeprefix("grpoctl."): value for key, value in parent.data.tags.items()}
    wanted = {
        "study": study.dir.id, "sweep": "demo", "revision": "3", "sweep_sha": "1a2b3c4d" * 8, "profile": "tiny",
        "status": "COMPLETED", "message": "all 2 trials", "trials": "2 of 24", "best_trial": "0",
    }  # fmt: skip
    assert {key: tags[key] for key in wanted} == wanted
    assert parent.data.params["axes.stages.grpo.beta.values"] == "[0.0, 0.1]"
    assert parent.data.params["trials"] == "24"
    assert history(home, parent.info.run_id, "score") == [(0, 0.5), (1, 0.0)]
    assert history(home, parent.info.run_id, "best_score") == [(0, 0.5), (1, 0.5)]
    assert (folder_of(parent) / "figures" / "ranking.png").read_bytes() == b"a figure"
    for file in (study.dir.spec, study.dir.state):
        assert (folder_of(parent) / file.name).read_bytes() == file.read_bytes()
    found = children(home)
    assert set(found) == {run.id for run in (*first, *second)}
    assert {stored.experiment for stored in found.values()} == {
        "demo"
    }  # the parent's, or the pages would not nest them
    for run in first:
        stored = found[run.id]
        assert stored.tags[PARENT_TAG] == parent.info.run_id
        assert (stored.tags["grpoctl.study"], stored.tags["grpoctl.trial"]) == (study.dir.id, "0")
        assert (stored.tags["grpoctl.seed"], stored.tags["grpoctl.attempt"]) == ("3", "1")
        assert stored.status == "FINISHED"
        assert history(home, stored.mlflow_run_id, "loss") == losses(*range(4))
    assert {found[run.id].status for run in second} == {"FAILED"}


def test_a_trials_settings_are_params_of_its_runs(home: Home, study: Any) -> None:
    params = {"stages.grpo.num_generations": 4, "stages.grpo.learning_rate": 0.00123, "stages.grpo.beta": 0.02}
    loaded = load("p31", profile="tiny", seed=1, overrides=[f"{key}={value}" for key, value in params.items()])
    run = study.run(0, 1)
    shutil.rmtree(run.dir.path)
    prepare_in(run.dir, loaded, study=study.dir.id, trial=0, overrides=[])
    run.say(Status.COMPLETED)
    new_writer(study).catch_up()
    stored = children(home)[run.dir.id]
    assert {key: float(stored.params[key]) for key in params} == params
    assert set(leaves(plain(loaded.spec))) <= set(stored.params)


@pytest.fixture
def driven(study: Any) -> Iterator[Any]:
    """The study while somebody drives it."""
    with study.dir.hold():
        yield study


def test_a_study_is_followed_trial_by_trial(home: Home, driven: Any, losses: Any) -> None:
    study = driven
    writer = new_writer(study)
    assert writer.catch_up().state == "live"
    assert only(home).info.status == "RUNNING"
    study.trial(0)
    run = study.run(0, 0)
    run.rows(0, 1)
    writer.catch_up()
    stored = children(home)[run.dir.id]
    assert (stored.status, history(home, stored.mlflow_run_id, "loss")) == ("RUNNING", losses(0, 1))
    study.ended(1, score=0.7)  # before trial 0, which is still at work
    writer.catch_up()
    parent = only(home).info.run_id
    assert (history(home, parent, "score"), history(home, parent, "best_score")) == ([(1, 0.7)], [])
    run.rows(2, 3)
    run.say(Status.COMPLETED)
    study.ended(0, score=0.6)
    assert writer.catch_up().state == "live"  # more trials may come
    assert history(home, parent, "score") == [(0, 0.6), (1, 0.7)]
    assert history(home, parent, "best_score") == [(0, 0.6), (1, 0.7)]
    assert only(home).data.metrics == {"score": 0.7, "best_score": 0.7}
    assert history(home, stored.mlflow_run_id, "loss") == losses(*range(4))
    study.say("STOPPED")
    assert writer.catch_up().state == "done"
    assert only(home).info.status == "FINISHED"


@pytest.mark.parametrize("same_process", [True, False])
def test_a_resumed_study_goes_on_as_the_same(home: Home, study: Any, losses: Any, same_process: bool) -> None:
    writer = new_writer(study)
    for state, in_mlflow in (("INTERRUPTED", "KILLED"), ("RUNNING", "RUNNING"), ("COMPLETED", "FINISHED")):
        study.trial(0)
        study.run(0, 0).rows(0, 2) if state == "INTERRUPTED" else study.ended(0)
        with study.dir.hold():
            study.say(state, f"because {state}")
            writer = writer if same_process else new_writer(study)
            writer.catch_up()
            parent = only(home)
            assert (parent.info.status, parent.data.tags["grpoctl.status"]) == (in_mlflow, state)
            assert parent.data.tags["grpoctl.message"] == f"because {state}"
    assert (folder_of(parent) / "sweep.json").read_bytes() == study.dir.state.read_bytes()  # the last end's
    stored = children(home)[study.dir.run(0, 0).id]
    assert history(home, stored.mlflow_run_id, "loss") == losses(*range(4))
    assert history(home, parent.info.run_id, "score") == [(0, 0.5)]


def test_a_study_whose_driver_died_is_killed_in_mlflow(home: Home, study: Any) -> None:
    study.ended(0)
    os.utime(study.dir.state, (2500.0, 2500.0))
    state = new_writer(study).catch_up()  # it says RUNNING, and nobody drives it
    assert (state.state, state.synced_status, state.synced_ended) == ("done", "INTERRUPTED", 2500.0)
    info = only(home).info
    assert (info.status, info.end_time) == ("KILLED", 2_500_000)


def test_a_writer_that_died_before_noting_anything_is_found_again(home: Home, study: Any, losses: Any) -> None:
    runs = study.ended(0)
    with study.dir.hold():
        new_writer(study).catch_up()
    study.dir.mlflow.unlink()
    runs[0].mlflow.unlink()
    study.ended(1, score=0.4)
    study.say("COMPLETED")
    new_writer(study).catch_up()
    assert len(children(home)) == 4
    assert history(home, only(home).info.run_id, "score") == [(0, 0.5), (1, 0.4)]
    assert history(home, children(home)[runs[0].id].mlflow_run_id, "loss") == losses(*range(4))


def test_a_run_whose_directory_was_made_anew_stays_one_child(home: Home, study: Any, losses: Any) -> None:
    run = study.run(0, 0)
    run.rows(0, 1)
    with study.dir.hold():
        new_writer(study).catch_up()
        shutil.rmtree(run.dir.path)
        again = study.run(0, 0)
        document = read_json(again.dir.provenance) or {}
        document["attempts"][0]["started"] = 1234.0  # another birth
        replace_json(again.dir.provenance, document)
        again.rows(0, 3)
        new_writer(study).catch_up()
    stored = children(home)[run.dir.id]
    assert history(home, stored.mlflow_run_id, "loss") == losses(*range(4))


def test_a_failed_trial_that_is_retried_gets_its_score(home: Home, study: Any) -> None:
    study.ended(0, Status.FAILED, score=None)
    study.ended(1, score=0.4)
    study.say("COMPLETED")
    new_writer(study).catch_up()
    parent = only(home).info.run_id
    assert history(home, parent, "best_score") == [(1, 0.4)]
    study.ended(0, score=0.6)
    new_writer(study).catch_up()
    assert history(home, parent, "score") == [(0, 0.6), (1, 0.4)]
    assert history(home, parent, "best_score") == [(0, 0.6), (1, 0.4), (1, 0.6)]  # MLflow shows the newer of the two
    assert only(home).data.metrics["best_score"] == 0.6
    assert children(home)[study.dir.run(0, 0).id].status == "FINISHED"


def test_one_damaged_run_does_not_keep_the_others_back(home: Home, study: Any) -> None:
    bad, good = study.ended(0)
    bad.metrics.write_text('{"step": 0}\n###\n{"step": 2}\n')
    study.say("COMPLETED")
    writer = new_writer(study)
    state = writer.catch_up()
    assert state.state == "behind"
    assert str(state.error).startswith(f"1 run cannot be written; {bad.id}: ")
    assert writer.attended[good.id] is None
    assert "row 2 is damaged" in str(writer.attended[bad.id])
    assert (read_state(bad) or state).state == "behind"
    assert children(home)[good.id].status == "FINISHED"
    assert only(home).info.status == "FINISHED"


def test_what_is_done_is_not_asked_for_again(home: Home, driven: Any) -> None:
    runs = driven.ended(0)
    writer = new_writer(driven)
    writer.catch_up()
    assert set(writer.attended) == {run.id for run in runs}
    writer.attended.clear()
    writer.catch_up()
    later = new_writer(driven)
    later.catch_up()
    assert (writer.attended, later.attended) == ({}, {})


def test_a_study_deleted_by_the_user_stays_deleted_with_its_runs(home: Home, study: Any) -> None:
    study.ended(0)
    with study.dir.hold():
        state = new_writer(study).catch_up()
        open_client(home).delete_run(str(state.mlflow_run_id))
        study.ended(1)
        state = new_writer(study).catch_up()
    assert (state.state, state.error) == ("done", DELETED)
    assert parents(home) == []
    assert len(children(home)) == 2


def test_a_study_that_has_not_begun_is_nothing(home: Home, study: Any) -> None:
    study.dir.state.unlink()
    with study.dir.hold():
        assert new_writer(study).catch_up().state == "live"
    assert parents(home) == []
