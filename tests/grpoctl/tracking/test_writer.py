"""One run to MLflow: everything once, whatever happens in between. In this process, on a real SQLite store."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pytest

from grpoctl.files import RowWriter, truncate_after
from grpoctl.runs.run_dir import Home
from grpoctl.runs.status import Status
from grpoctl.tracking.mirror_state import read_state, write_state
from grpoctl.tracking.store import open_client
from grpoctl.tracking.writer import DELETED, RunWriter
from tests.grpoctl.tracking.stored import StoredRun, history, runs_of


def new_writer(run: Any) -> RunWriter:
    """As a new process would have it."""
    return RunWriter(run.dir, open_client(run.dir.home))


def only(home: Home) -> StoredRun:
    (stored,) = runs_of(home)
    return stored


def test_a_run_is_copied_whole(home: Home, run: Any, losses: Any) -> None:
    run.rows(0, 3)
    run.say(Status.COMPLETED)
    state = new_writer(run).catch_up()
    assert (state.state, state.error, state.synced_step, state.synced_status) == ("done", None, 3, "COMPLETED")
    assert read_state(run.dir) == state
    stored = only(home)
    assert (stored.experiment, stored.name, stored.status) == ("p31", run.dir.id, "FINISHED")
    assert history(home, stored.mlflow_run_id, "loss") == losses(0, 1, 3)  # step 2 has none
    assert history(home, stored.mlflow_run_id, "eval/reward") == [(0, 0.0), (2, 0.02)]
    assert "step" not in stored.metrics
    assert stored.params["stages.grpo.learning_rate"] == "2e-06"
    assert stored.params["task.domains.math"] == "2.0"
    assert stored.params["title"] == ""
    assert stored.tags["grpoctl.revision"] == "p31@2"
    assert stored.tags["mlflow.source.git.commit"] == "c" * 40
    assert stored.tags["grpoctl.git_dirty"] == stored.tags["mlflow.source.git.dirty"] == "true"


def test_the_spec_and_the_result_are_artifacts_inside_the_home(home: Home, run: Any) -> None:
    run.say(Status.COMPLETED)
    new_writer(run).catch_up()
    folder = Path(unquote(urlparse(only(home).artifact_uri).path))
    assert folder.is_relative_to(home.mlflow_artifacts)
    assert (folder / "spec.yaml").read_bytes() == run.dir.spec.read_bytes()
    assert (folder / "result.json").read_bytes() == run.dir.result.read_bytes()
    assert (folder / "provenance.json").is_file()


def test_a_live_run_is_followed(home: Home, run: Any, losses: Any) -> None:
    writer = new_writer(run)
    assert writer.catch_up().state == "live"
    assert only(home).status == "RUNNING"
    for first, last in ((0, 1), (2, 5), (6, 6)):
        run.rows(first, last)
        assert writer.catch_up().synced_step == last
    assert history(home, only(home).mlflow_run_id, "loss") == losses(*range(7))


@pytest.mark.parametrize("same_process", [True, False])
def test_steps_written_again_after_a_resume_are_there_once(
    home: Home, run: Any, losses: Any, same_process: bool
) -> None:
    writer = new_writer(run)
    run.rows(0, 9)
    writer.catch_up()
    truncate_after(run.dir.metrics, 4)
    run.rows(5, 7)
    writer = writer if same_process else new_writer(run)
    writer.catch_up()
    run.rows(8, 12)
    writer.catch_up()
    assert history(home, only(home).mlflow_run_id, "loss") == losses(*range(13))


def test_a_run_that_was_interrupted_and_resumed_says_so_each_time(home: Home, run: Any) -> None:
    for state, expected in (
        (Status.RUNNING, "RUNNING"),
        (Status.INTERRUPTED, "KILLED"),
        (Status.RUNNING, "RUNNING"),
        (Status.INVALID_ROLLOUT, "FAILED"),
    ):
        run.say(state, f"because {state}")
        new_writer(run).catch_up()
        stored = only(home)
        assert (stored.status, stored.tags["grpoctl.status"]) == (expected, state.value)
        assert stored.tags["grpoctl.message"] == f"because {state}"


def test_the_end_in_mlflow_is_the_end_of_the_run(home: Home, run: Any) -> None:
    run.say(Status.COMPLETED)
    new_writer(run).catch_up()
    info = open_client(home).get_run(only(home).mlflow_run_id).info
    assert (info.start_time, info.end_time) == (1_000_000, 2_000_000)  # 1000 s and 2000 s in milliseconds


def test_long_runs_go_in_batches(home: Home, run: Any) -> None:
    run.rows(1, 999)  # 998 losses, 999 updates, 499 rewards: 2496 points
    new_writer(run).catch_up()
    stored = only(home)
    counts = [len(history(home, stored.mlflow_run_id, key)) for key in ("loss", "update", "eval/reward")]
    assert counts == [998, 999, 499]


def test_more_params_than_one_batch_holds(home: Home, run: Any) -> None:
    with run.dir.spec.open("a") as file:
        file.writelines(f"extra{number}: {number}\n" for number in range(150))
    new_writer(run).catch_up()
    assert len(only(home).params) == 150 + 14


def test_params_stay_as_they_were_first_written(home: Home, run: Any) -> None:
    new_writer(run).catch_up()
    run.dir.spec.write_text(run.dir.spec.read_text().replace("profile: tiny", "profile: small"))
    new_writer(run).catch_up()  # MLflow raises for a changed param; another grpoctl may format a value differently
    assert only(home).params["profile"] == "tiny"


def test_a_writer_that_died_before_noting_its_run_id_is_found_again(home: Home, run: Any, losses: Any) -> None:
    run.rows(0, 3)
    new_writer(run).catch_up()
    run.dir.mlflow.unlink()
    run.rows(4, 5)
    new_writer(run).catch_up()
    assert history(home, only(home).mlflow_run_id, "loss") == losses(*range(6))


def test_a_store_that_lost_the_run_gets_it_again(home: Home, run: Any, losses: Any) -> None:
    run.rows(0, 3)
    state = new_writer(run).catch_up()
    write_state(run.dir, dataclasses.replace(state, mlflow_run_id="f" * 32))
    open_client(home).delete_experiment(str(state.experiment_id))
    new_writer(run).catch_up()
    assert history(home, only(home).mlflow_run_id, "loss") == losses(*range(4))


def test_a_run_deleted_by_the_user_stays_deleted(home: Home, run: Any) -> None:
    run.rows(0, 3)
    state = new_writer(run).catch_up()
    open_client(home).delete_run(str(state.mlflow_run_id))
    run.say(Status.COMPLETED)
    state = new_writer(run).catch_up()
    assert (state.state, state.error) == ("done", DELETED)
    assert runs_of(home) == []


def test_missing_values_are_no_points(home: Home, run: Any) -> None:
    with RowWriter(run.dir.metrics) as rows:
        rows.append({"step": 1, "kl": float("nan"), "loss": float("inf")}, {"step": 2, "kl": 0.5, "loss": 1})
    new_writer(run).catch_up()
    run_id = only(home).mlflow_run_id
    assert (history(home, run_id, "kl"), history(home, run_id, "loss")) == ([(2, 0.5)], [(2, 1.0)])


def test_runs_of_one_experiment_share_it(home: Home, new_run: Any) -> None:
    for name in ("p31", "p31", "p30"):
        new_writer(new_run(name)).catch_up()
    assert sorted(stored.experiment for stored in runs_of(home)) == ["p30", "p31", "p31"]
    assert len(open_client(home).search_experiments()) == 3  # with MLflow's own Default


def test_the_pictures_of_evaluations_are_artifacts_in_a_folder_of_their_own(home: Home, run: Any) -> None:
    writer = new_writer(run)
    for step in (0, 20):
        run.dir.pictures.mkdir(exist_ok=True)
        run.dir.picture(step).write_bytes(b"png %d" % step)
        writer.catch_up()
    folder = Path(unquote(urlparse(only(home).artifact_uri).path)) / "pictures"
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == {
        "step-000000.png": b"png 0", "step-000020.png": b"png 20",
    }  # fmt: skip
