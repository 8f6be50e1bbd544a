"""What MLflow has of a run beside params and metrics: once each, whatever is lost in between. On a real store."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from grpoctl.files import RowWriter, replace_json
from grpoctl.runs import status
from grpoctl.runs.run_dir import Home, RunDir
from grpoctl.runs.status import Status, StatusRecord
from grpoctl.tracking.description import ending_tags
from grpoctl.tracking.store import open_client
from grpoctl.tracking.sweep_writer import SweepWriter
from grpoctl.tracking.sync import sync
from grpoctl.tracking.writer import RunWriter

RESULT: Mapping[str, Any] = {
    "status": "COMPLETED",
    "message": "all 4 steps done",
    "steps": 4,
    "seconds": 2.5,
    "final": {"eval/reward": 0.6, "collapse_rate": 0.25, "steps": 4, "reward/mean": 0.4},
    "best": {"step": 2, "eval/reward": 0.7},
    "gain": {"start": 0.5, "end": 0.6, "gain": 0.1, "interval": [0.02, 0.18]},
    "expects": [{"expectation": "collapse_rate < 0.05", "met": False}, {"expectation": "kl < 1", "met": None}],
    "findings": [{"id": "dead-groups", "severity": "warning", "summary": "51% of the groups"}],
}


def end(run: Any, said: Status = Status.COMPLETED, ended: float = 2000.0, **more: object) -> None:
    """End a run as the trainer does: samples, answers, weights, its result, its status last."""
    with RowWriter(run.dir.samples) as samples:
        samples.append(*({"step": 1, "row": row, "text": f"answer {row}", "reward": row / 10} for row in range(3)))
    with RowWriter(run.dir.problem_rows) as problems:
        for step in (0, 2, 4):
            first = {"step": step, "place": 0, "draw": 0, "prompt_id": "e-0", "problem": "ab", "reward": step / 10}
            problems.append({**first, "prompt": "1 + 1", "output": f"after {step}"})
    if not said.resumable:
        run.dir.adapter.mkdir(exist_ok=True)
        replace_json(run.dir.adapter / "grpoctl.json", {"run": run.dir.id, "step": 2})
        (run.dir.adapter / "README.md").write_text("# card")
        (run.dir.adapter / "adapter_model.safetensors").write_bytes(b"weights")
    replace_json(run.dir.result, {**RESULT, "status": said, **more})
    status.write(run.dir.status, StatusRecord(status=said, pid=1, started=1000.0, ended=ended, step=4))


def stored(home: Home) -> Any:
    client = open_client(home)
    experiments = [e.experiment_id for e in client.search_experiments() if e.name != "Default"]
    return client, client.search_runs(experiments)


def whole(home: Home) -> dict[str, Any]:
    """Everything the store has of the one run, so that two states of it can be compared."""
    client, (run,) = stored(home)
    models = client.search_logged_models([run.info.experiment_id])
    return {
        "metrics": {
            key: [(point.step, point.value) for point in client.get_metric_history(run.info.run_id, key)]
            for key in run.data.metrics
        },
        "tags": {k: v for k, v in run.data.tags.items() if k != "grpoctl.attempt"},
        "inputs": [(entry.dataset.name, entry.dataset.digest) for entry in run.inputs.dataset_inputs],
        "outputs": [(output.model_id == models[0].model_id, output.step) for output in run.outputs.model_outputs],
        "models": [
            (model.name, str(model.status), model.params, model.source_run_id == run.info.run_id) for model in models
        ],
        "files": sorted(entry.path for entry in client.list_artifacts(run.info.run_id)),
        "model files": sorted(entry.path for entry in client.list_logged_model_artifacts(models[0].model_id)),
        "kind": client.get_experiment(run.info.experiment_id).tags["mlflow.experimentKind"],
        "note": client.get_experiment(run.info.experiment_id).tags.get("mlflow.note.content", ""),
    }  # fmt: skip


def test_what_a_run_came_to_can_be_searched_and_read(home: Home, run: Any) -> None:
    run.rows(0, 4)
    end(run)
    RunWriter(run.dir, open_client(home)).catch_up()
    has = whole(home)
    assert has["metrics"]["best/eval/reward"] == [(2, 0.7)]
    assert has["metrics"]["collapse_rate"] == [(4, 0.25)]
    assert (has["metrics"]["gain"], has["metrics"]["seconds"]) == ([(4, 0.1)], [(4, 2.5)])
    assert "reward/mean" not in has["metrics"]  # a mean over the last steps is no value of a step
    tags = has["tags"]
    assert (tags["grpoctl.finding.dead-groups"], tags["grpoctl.findings"]) == ("warning", "warning dead-groups")
    assert tags["grpoctl.verdict"] == "eval/reward 0.500 -> 0.600, +0.100 ± 0.080: a significant gain"
    assert tags["grpoctl.expected"] == "0 of 2 met"
    assert tags["mlflow.user"] == run.dir.path.owner()
    note = tags["mlflow.note.content"]
    assert "0.500 -> 0.600" in note
    assert "refuted: collapse_rate < 0.05" in note
    assert "untested: kl < 1" in note
    assert "`dead-groups`: 51% of the groups" in note
    assert "| eval/reward | reward | higher |" in has["note"]
    assert "| collapse_rate | fraction | lower |" in has["note"]
    assert len(has["note"]) <= 5000
    assert has["inputs"][0][0] == "workflow-dsl"
    assert has["models"] == [(run.dir.id, "READY", {"base": "builtin:tiny", "step": "2"}, True)]
    assert has["outputs"] == [(True, 2)]
    assert has["model files"] == ["README.md", "grpoctl.json"]  # the weights stay where they are
    assert tags["grpoctl.weights"] == str(run.dir.adapter)


def test_a_verdict_says_which_error_stands_in_its_way() -> None:
    result: dict[str, Any] = {"findings": [{"id": "rollout-mode", "severity": "error"}]}
    gain = {"start": 0.5, "end": 0.6, "gain": 0.1, "interval": [0.02, 0.18]}
    assert ending_tags(result)["grpoctl.verdict"] == "error rollout-mode"
    verdict = ending_tags({**result, "gain": gain})["grpoctl.verdict"]
    assert verdict == "eval/reward 0.500 -> 0.600, +0.100 ± 0.080: a significant gain; but error rollout-mode"


def test_samples_and_answers_are_tables_as_mlflow_reads_them(
    home: Home, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    end(run)
    RunWriter(run.dir, open_client(home)).catch_up()
    client, (made,) = stored(home)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", client.tracking_uri)  # load_table searches there, whoever is asked
    listed = json.loads(made.data.tags["mlflow.loggedArtifacts"])
    assert listed == [{"path": name, "type": "table"} for name in ("samples.json", "problems.json")]
    samples, answers = (
        client.load_table(made.info.experiment_id, table["path"], run_ids=[made.info.run_id]) for table in listed
    )
    assert list(samples["text"]) == ["answer 0", "answer 1", "answer 2"]
    assert list(answers["output"]) == ["after 0", "after 2"]  # before training and at the best evaluation
    assert list(answers["prompt"]) == ["1 + 1"] * 2


class Losing:
    """A client whose call of one name is made, and whose reply is then lost; once."""

    def __init__(self, client: Any, name: str) -> None:
        self._client, self._name, self.lost = client, name, False

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)
        if name != self._name or self.lost:
            return method

        def losing(*args: Any, **more: Any) -> None:
            method(*args, **more)
            self.lost = True
            raise ConnectionError("the reply was lost")

        return losing


CALLS = ("create_run", "set_experiment_tag", "log_inputs", "log_batch", "set_terminated", "log_text", "set_tag",
         "create_logged_model", "log_model_artifact", "finalize_logged_model", "log_outputs",
         "log_artifact")  # fmt: skip


@pytest.mark.parametrize("call", CALLS)
def test_a_lost_reply_doubles_nothing_and_leaves_nothing_out(home: Home, run: Any, call: str) -> None:
    run.rows(0, 4)
    end(run)
    client: Any = Losing(open_client(home), call)
    with pytest.raises(ConnectionError):
        RunWriter(run.dir, client).catch_up()
    assert client.lost
    assert RunWriter(run.dir, client).catch_up().done
    before = whole(home)
    assert [len(before[key]) for key in ("inputs", "outputs", "models")] == [1, 1, 1]
    assert before["metrics"]["collapse_rate"] == [(4, 0.25)]
    assert before["models"][0][1] == "READY"
    run.dir.mlflow.unlink()  # whoever deletes the note has it written again
    sync(home)
    assert whole(home) == before


def test_a_run_that_goes_on_has_its_last_end_and_the_data_it_reads_now(home: Home, run: Any) -> None:
    run.rows(0, 2)
    end(run, Status.INTERRUPTED, steps=2, best={"step": 0, "eval/reward": 0.5})
    RunWriter(run.dir, open_client(home)).catch_up()
    _, (made,) = stored(home)
    assert made.outputs.model_outputs == []  # nothing was exported
    run.dir.result.unlink()
    run.say(Status.RUNNING)
    provenance = json.loads(run.dir.provenance.read_text())
    replace_json(run.dir.provenance, {**provenance, "inputs": {"data.jsonl": "ab"}})
    run.rows(3, 4)
    end(run, ended=3000.0, findings=[{"id": "no-gain", "severity": "info", "summary": "none"}])
    RunWriter(run.dir, open_client(home)).catch_up()
    has = whole(home)
    assert has["metrics"]["best/eval/reward"] == [(0, 0.5), (2, 0.7)]
    assert has["tags"]["grpoctl.finding.no-gain"] == "info"
    assert "grpoctl.finding.dead-groups" not in has["tags"]
    assert len(has["inputs"]) == 2
    assert "no-gain" in has["tags"]["mlflow.note.content"]


def test_a_description_that_a_person_has_written_stays(home: Home, run: Any) -> None:
    client = open_client(home)
    RunWriter(run.dir, client).catch_up()
    _, (made,) = stored(home)
    client.set_tag(made.info.run_id, "mlflow.note.content", "my words")
    client.set_experiment_tag(made.info.experiment_id, "mlflow.note.content", "my own")
    end(run)
    RunWriter(run.dir, client).catch_up()
    has = whole(home)
    assert (has["tags"]["mlflow.note.content"], has["note"]) == ("my words", "my own")
    assert has["tags"]["grpoctl.findings"] == "warning dead-groups"


class Older:
    """A client of a server that has no logged models."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        if "logged_model" not in name:
            return getattr(self._client, name)
        from mlflow.exceptions import MlflowException
        from mlflow.protos.databricks_pb2 import ENDPOINT_NOT_FOUND

        raise MlflowException("no such endpoint", error_code=ENDPOINT_NOT_FOUND)


def test_a_server_without_logged_models_has_everything_else(home: Home, run: Any) -> None:
    end(run)
    older: Any = Older(open_client(home))
    assert RunWriter(run.dir, older).catch_up().done
    _, (made,) = stored(home)
    assert made.data.tags["grpoctl.weights"] == str(run.dir.adapter)


def test_children_of_a_study_can_be_sorted_by_what_it_ranks_them_by(home: Home, study: Any) -> None:
    study.ended(0)
    study.ended(1)
    study.ended(2, Status.COLLAPSED)
    values = {0: [0.2, 0.4], 1: [0.9, None], 2: [0.0, 0.0]}
    trials = [{**trial, "values": values[trial["number"]]} for trial in study.document["trials"]]
    study.say("COMPLETED", trials=trials, best={"number": 1, "score": 0.9})
    SweepWriter(study.dir, open_client(home)).catch_up()
    client, runs = stored(home)
    (parent,) = [run for run in runs if "mlflow.parentRunId" not in run.data.tags]
    mine = f"tags.mlflow.parentRunId = '{parent.info.run_id}' and metrics.score >= 0"
    order = client.search_runs([parent.info.experiment_id], mine, order_by=["metrics.score DESC"])
    names = [child.info.run_name.removeprefix(f"{study.dir.id}-") for child in order]
    assert names[:3] == ["t0001-s0", "t0000-s1", "t0000-s0"]
    assert sorted(names[3:]) == ["t0002-s0", "t0002-s1"]  # what the study ranks a collapsed run by
    assert "maximize `eval/reward` (reward, higher is better)" in parent.data.tags["mlflow.note.content"]
    assert "trial 1, eval/reward 0.900" in parent.data.tags["mlflow.note.content"]
    trials[0]["values"] = [0.3, 0.4]  # it was retried
    study.say("COMPLETED", trials=trials)
    for _ in range(2):
        SweepWriter(study.dir, open_client(home)).catch_up()
    retried = next(child for child in order if child.info.run_name.endswith("t0000-s0"))
    points = client.get_metric_history(retried.info.run_id, "score")
    assert [(point.step, point.value) for point in points] == [(0, 0.2), (0, 0.3)]
    assert client.get_run(retried.info.run_id).data.metrics["score"] == 0.3


def test_pictures_can_be_opened(home: Home, run: Any, tmp_path: Path) -> None:
    directory: RunDir = run.dir
    directory.pictures.mkdir()
    directory.picture(4).write_bytes(b"\x89PNG")
    end(run)
    RunWriter(directory, open_client(home)).catch_up()
    client, (made,) = stored(home)
    (picture,) = client.list_artifacts(made.info.run_id, "pictures")
    assert Path(client.download_artifacts(made.info.run_id, picture.path, str(tmp_path))).read_bytes() == b"\x89PNG"
