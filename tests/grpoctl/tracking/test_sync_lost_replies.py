"""A tracking server that takes what it is sent but loses its reply: nothing may be there twice, nothing be missing."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlparse

import pytest

from grpoctl.runs.status import Status
from grpoctl.tracking.store import open_client
from grpoctl.tracking.sync import sync
from grpoctl.tracking.writer import RunWriter


class FakeServer(HTTPServer):
    """The part of MLflow's REST interface that is used, kept in memory. `lose` names the call whose reply is lost."""

    def __init__(self, artifacts: Path) -> None:
        super().__init__(("127.0.0.1", 0), FakeHandler)
        self.artifacts = artifacts.as_uri()
        self.runs: dict[str, dict[str, Any]] = {}
        self.experiment = ""
        self.lose = ""
        self.lost = 0

    def answer(self, call: str, sent: dict[str, Any]) -> dict[str, Any] | None:
        """What the call gives; None for what does not exist."""
        method = getattr(self, call.replace("/", "_").replace("-", "_"))
        return method(sent)  # type: ignore[no-any-return]

    def experiments_get_by_name(self, sent: dict[str, Any]) -> dict[str, Any] | None:
        experiment = {"experiment_id": "1", "name": self.experiment, "lifecycle_stage": "active"}
        return {"experiment": experiment} if self.experiment else None

    def experiments_get(self, sent: dict[str, Any]) -> dict[str, Any] | None:
        return self.experiments_get_by_name(sent)

    def experiments_set_experiment_tag(self, sent: dict[str, Any]) -> dict[str, Any]:
        return {}

    def runs_log_inputs(self, sent: dict[str, Any]) -> dict[str, Any]:
        inputs = self.runs[sent["run_id"]].setdefault("inputs", {"dataset_inputs": []})
        inputs["dataset_inputs"] += sent["datasets"]
        return {}

    def experiments_create(self, sent: dict[str, Any]) -> dict[str, Any]:
        self.experiment = sent["name"]
        return {"experiment_id": "1"}

    def experiments_search(self, sent: dict[str, Any]) -> dict[str, Any]:
        return {"experiments": []}

    def runs_create(self, sent: dict[str, Any]) -> dict[str, Any]:
        info = {"run_id": f"{len(self.runs) + 1:032x}", "experiment_id": "1", "status": "RUNNING"}
        info |= {"artifact_uri": self.artifacts, "lifecycle_stage": "active", "run_name": sent["run_name"]}
        self.runs[info["run_id"]] = {"info": info, "data": {"metrics": [], "params": [], "tags": sent["tags"]}}
        return {"run": self.runs[info["run_id"]]}

    def runs_get(self, sent: dict[str, Any]) -> dict[str, Any] | None:
        run = self.runs.get(sent["run_id"])
        return run and {"run": run}

    def runs_search(self, sent: dict[str, Any]) -> dict[str, Any]:
        wanted = sent["filter"]
        runs = self.runs.values()
        found = [run for run in runs if any(f"`{t['key']}` = '{t['value']}'" in wanted for t in run["data"]["tags"])]
        return {"runs": found}

    def runs_log_batch(self, sent: dict[str, Any]) -> dict[str, Any]:
        for part in ("metrics", "params", "tags"):
            self.runs[sent["run_id"]]["data"][part] += sent.get(part, [])
        return {}

    def metrics_get_history(self, sent: dict[str, Any]) -> dict[str, Any]:
        found = self.runs[sent["run_id"]]["data"]["metrics"]
        return {"metrics": [metric for metric in found if metric["key"] == sent["metric_key"]]}

    def runs_update(self, sent: dict[str, Any]) -> dict[str, Any]:
        info = self.runs[sent["run_id"]]["info"]
        info["status"] = sent["status"]
        return {"run_info": info}


class FakeHandler(BaseHTTPRequestHandler):
    """One request to the FakeServer."""

    server: FakeServer

    def do_GET(self) -> None:
        """Parameters are in the query."""
        self._reply({key: values[0] for key, values in parse_qs(urlparse(self.path).query).items()})

    def do_POST(self) -> None:
        """Parameters are a JSON document."""
        self._reply(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def _reply(self, sent: dict[str, Any]) -> None:
        call = urlparse(self.path).path.removeprefix("/api/2.0/mlflow/")
        answer = self.server.answer(call, sent)
        if call == self.server.lose:
            self.server.lost += 1
            self.server.lose = ""
            return  # done, but the connection closes without a word
        missing = {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "no such thing"}
        self.send_response(404 if answer is None else 200)
        self.end_headers()
        self.wfile.write(json.dumps(missing if answer is None else answer).encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeServer]:
    """A fake server under way, named by MLFLOW_TRACKING_URI."""
    server = FakeServer(tmp_path / "artifacts")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://me:hunter2@127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def losses_at(server: FakeServer) -> list[tuple[int, float]]:
    (run,) = server.runs.values()
    # MLflow's REST interface leaves a step of 0 out.
    return [(m.get("step", 0), m.get("value", 0.0)) for m in run["data"]["metrics"] if m["key"] == "loss"]


@pytest.mark.parametrize(
    "lost",
    [
        "",
        "experiments/create",
        "experiments/set-experiment-tag",
        "runs/create",
        "runs/log-batch",
        "runs/log-inputs",
        "runs/update",
    ],
)
def test_a_lost_reply_doubles_nothing(server: FakeServer, run: Any, losses: Any, lost: str) -> None:
    run.rows(0, 7)
    server.lose = lost
    run.say(Status.COLLAPSED)
    outcomes = [sync(run.dir.home).runs[0].outcome for _ in range(3)]
    assert outcomes == (["behind", "written", "unchanged"] if lost else ["written", "unchanged", "unchanged"])
    assert server.lost == bool(lost)
    assert losses_at(server) == losses(*range(8))
    assert [stored["info"]["status"] for stored in server.runs.values()] == ["FAILED"]
    assert [len(stored["inputs"]["dataset_inputs"]) for stored in server.runs.values()] == [1]


@pytest.mark.parametrize("lost", ["experiments/create", "runs/create", "runs/log-batch", "runs/update"])
def test_a_lost_reply_makes_no_second_parent_or_child(server: FakeServer, study: Any, losses: Any, lost: str) -> None:
    runs = study.ended(0)
    study.say("COMPLETED")
    server.lose = lost
    for _ in range(3):
        report = sync(study.dir.home)
    assert server.lost == 1
    assert set(report.of("unchanged")) == {study.dir.id, *(run.id for run in runs)}
    parent, *children = sorted(server.runs.values(), key=lambda stored: stored["info"]["run_name"] != study.dir.id)
    points = [(metric["key"], metric.get("step", 0), metric["value"]) for metric in parent["data"]["metrics"]]
    assert sorted(points) == [("best_score", 0, 0.5), ("score", 0, 0.5)]
    assert {child["info"]["run_name"] for child in children} == {run.id for run in runs}
    for child in children:
        found = [(m.get("step", 0), m.get("value", 0.0)) for m in child["data"]["metrics"] if m["key"] == "loss"]
        assert found == losses(*range(4))


def test_rows_whose_reply_was_lost_are_not_sent_again(server: FakeServer, run: Any, losses: Any) -> None:
    writer = RunWriter(run.dir, open_client(run.dir.home))
    writer.catch_up()
    run.rows(0, 4)
    server.lose = "runs/log-batch"
    with pytest.raises(Exception, match="log-batch"):
        writer.catch_up()
    assert losses_at(server) == losses(*range(5))  # MLflow has them, though it could not say so
    run.rows(5, 6)
    RunWriter(run.dir, open_client(run.dir.home)).catch_up()
    assert losses_at(server) == losses(*range(7))


def test_nothing_is_printed_and_the_password_stays_out(
    server: FakeServer, run: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    run.say(Status.COMPLETED)
    report = sync(run.dir.home)
    assert report.store.startswith("http://***@127.0.0.1:")
    assert capfd.readouterr() == ("", "")
    assert "hunter2" not in run.dir.mlflow.read_text()
