"""MLflow tells the truth about a run however it ended, and a run does not care whether MLflow is there."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from grpoctl.runs.run_dir import RunDir
from grpoctl.tracking.store import prepare_environment
from tests.end_to_end.cli import GRPOCTL, Cli, eventually, rows_of, status_of
from tests.end_to_end.scenarios import ENDINGS, Ended

if TYPE_CHECKING:
    from mlflow.entities import Run
    from mlflow.tracking import MlflowClient

pytestmark = pytest.mark.process

SMALL = ("task.eval_prompts=4", "stages.grpo.max_steps=3")


def mlflow_client(cli: Cli) -> MlflowClient:
    """MLflow's own client on the store of a user."""
    prepare_environment()
    from mlflow.tracking import MlflowClient

    return MlflowClient(f"sqlite:///{cli.home.mlflow_store}")


def mlflow_run(cli: Cli, run: RunDir) -> Run:
    """What MLflow has of a run."""
    client = mlflow_client(cli)
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    (found,) = client.search_runs(experiments, f"tags.`grpoctl.run_id` = '{run.id}'")
    return found


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_status_is_true_here_and_in_mlflow(ended: Ended, ending: str) -> None:
    code, status, in_mlflow = ENDINGS[ending]
    assert ended.done[ending].returncode == code, ended.done[ending].stderr
    run = ended.run(ending)
    shown = {entry["run_id"]: entry for entry in ended.cli.run("ls", "--json").document["runs"]}
    assert shown[run.id]["status"] == status
    # After `kill -9` the mirror, a process of its own, is the one that says so.
    eventually(lambda: mlflow_run(ended.cli, run).info.status == in_mlflow, f"MLflow says {in_mlflow}", 30)


def test_mlflow_has_settings_metrics_tags_and_the_spec(ended: Ended) -> None:
    run = ended.run("good")
    stored = mlflow_run(ended.cli, run)
    assert stored.info.run_name == run.id
    assert stored.data.params["stages.grpo.num_generations"] == "8"
    assert stored.data.params["model.source"] == "builtin:tiny"
    document = ended.done["good"].document
    tags = {key.removeprefix("grpoctl."): value for key, value in stored.data.tags.items()}
    assert (tags["experiment"], tags["revision"], tags["seed"]) == ("p31", "p31@2", "0")
    assert (tags["spec_sha"], tags["status"]) == (document["spec_sha"], "COMPLETED")
    client = mlflow_client(ended.cli)
    for name in ("eval/reward", "reward/mean", "update"):
        points = [(point.step, point.value) for point in client.get_metric_history(stored.info.run_id, name)]
        assert sorted(points) == [(row["step"], row[name]) for row in rows_of(run.metrics) if name in row]
    assert {file.path for file in client.list_artifacts(stored.info.run_id)} >= {"spec.yaml", "result.json"}


def test_sync_finds_nothing_left_to_do(ended: Ended) -> None:
    for ending in ENDINGS:
        note = ended.run(ending).mlflow
        eventually(lambda note=note: '"done"' in note.read_text(), "its mirror is done")  # type: ignore[misc]
    document = ended.cli.run("sync", "--json").document
    assert document.keys() == {"schema", "store", "runs"}
    assert {entry["outcome"] for entry in document["runs"]} <= {"unchanged", "live"}


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port that nobody listens on, kept from others."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def test_a_server_out_of_reach_stops_nothing_and_sync_catches_up(cli: Cli, closed_port: int) -> None:
    away = cli.with_environment(MLFLOW_TRACKING_URI=f"http://me:hunter2@127.0.0.1:{closed_port}")
    done = away.run("run", "p31", "--json", *SMALL)
    assert done.returncode == 0, done.stderr
    assert done.document["status"] == "COMPLETED"
    (note,) = done.errors
    assert "behind" in note
    assert note.endswith("grpoctl sync catches up")
    assert "hunter2" not in done.stdout + done.stderr

    failed = away.run("sync")
    assert (failed.returncode, failed.stdout, len(failed.stderr.splitlines())) == (3, "", 1)
    assert "hunter2" not in failed.stderr

    (outcome,) = cli.run("sync", "--json").document["runs"]
    assert outcome == {"run_id": cli.only_run.id, "outcome": "written", "error": None}
    assert mlflow_run(cli, cli.only_run).info.status == "FINISHED"


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port whose owner takes connections and never answers."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(64)
        yield listening.getsockname()[1]


def test_a_server_that_hangs_does_not_slow_the_steps(cli: Cli, silent_port: int) -> None:
    # A step that waited for a request would take these 30 s; all of them together take a fraction of one.
    hanging = {"MLFLOW_TRACKING_URI": f"http://127.0.0.1:{silent_port}", "MLFLOW_HTTP_REQUEST_TIMEOUT": "30"}
    process = cli.with_environment(**hanging).start("run", "p31", "--json", *SMALL)
    eventually(lambda: status_of(cli.first_run) == "COMPLETED" and not cli.only_run.is_held(), "the run has ended")
    assert sum(row["total"] for row in rows_of(cli.only_run.timings)) < 30
    process.send(signal.SIGINT)  # whoever does not want to wait for MLflow need not
    done = process.wait()
    assert (done.returncode, done.document["status"]) == (0, "COMPLETED")
    (note,) = done.errors
    assert "behind" in note


@pytest.mark.slow
def test_ui_serves_the_recorded_runs(ended: Ended, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (command,) = ended.cli.run("ui", "--dry-run", "--port", str(port)).stdout.splitlines()
    assert f"--port {port}" in command
    address = f"http://127.0.0.1:{port}"
    with (tmp_path / "ui.log").open("wb") as log:
        server = subprocess.Popen(
            [str(GRPOCTL), "ui", "--port", str(port)], cwd=ended.cli.folder, env=ended.cli.env,
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    try:
        eventually(lambda: server.poll() is not None or _answers(address), "the page is served")
        assert server.poll() is None, (tmp_path / "ui.log").read_text()
        request = urllib.request.Request(
            f"{address}/api/2.0/mlflow/experiments/search",
            data=b'{"max_results": 10}',
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as reply:
            assert b'"p31"' in reply.read()
    finally:
        server.send_signal(signal.SIGINT)
        _ended(server)


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=30) as reply:
            return bool(reply.status == 200)
    except (urllib.error.URLError, ConnectionError):
        time.sleep(0.1)
        return False


def _ended(server: subprocess.Popen[bytes]) -> None:
    """Wait for the server's own end, and make sure of its workers."""
    with suppress(subprocess.TimeoutExpired):
        server.wait(20)
    with suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)
    server.wait()
