"""One run directory to MLflow: everything that is in the files and not yet there.

What is here: `RunWriter.catch_up`, which can be repeated at any time and after any failure. What is not: when it is
called (mirror, sync), and what the values are (payload).
"""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.errors import StorageError
from grpoctl.runs import status
from grpoctl.runs.records import read_json, read_new, storage_errors
from grpoctl.runs.run_dir import RunDir
from grpoctl.runs.status import StatusRecord
from grpoctl.tracking import payload
from grpoctl.tracking.mirror_state import MirrorState, read_state, write_state
from grpoctl.tracking.store import artifact_location, store_name

if TYPE_CHECKING:
    from mlflow.entities import Run
    from mlflow.tracking import MlflowClient

DELETED = "deleted in MLflow; nothing more is written there"


class RunWriter:
    """Writes one run to MLflow. After an exception make a new one: MLflow may have taken more than it confirmed."""

    def __init__(self, run: RunDir, client: MlflowClient) -> None:
        self._run = run
        self._client = client
        self._state = read_state(run) or MirrorState()
        self._offset = 0
        self._newest: dict[str, int] = {}
        self._mlflow_status = ""
        self._uploaded: set[Path] = set()
        self._opened = False

    def catch_up(self) -> MirrorState:
        """Write what is new, and say how far it got. Raises what MLflow raises, and StorageError for damaged files."""
        # The status first: an ending is written after the last row, so rows read after it are all the rows there are.
        record = status.read(self._run.status)
        if record is None:
            return self._state
        if not self._opened:
            self._open(record)
        if self._state.error == DELETED:
            return self._state
        before = self._state
        self._write_rows()
        self._write_status(record)
        self._upload(self._run.spec, self._run.provenance)
        if record.status.ended:
            self._upload(self._run.result)
        self._state = dataclasses.replace(
            self._state,
            state="done" if record.status.ended else "live",
            error=None,
            synced_status=record.status.value,
            synced_ended=record.ended,
        )
        if self._state != before:
            write_state(self._run, self._state)
        return self._state

    def _open(self, record: StatusRecord) -> None:
        """Find the MLflow run of this directory, or create it, and learn what it already has."""
        spec = _spec(self._run)
        provenance = read_json(self._run.provenance) or {}
        token = payload.token(self._run.id, provenance)
        found = self._known() or self._find_or_create(str(spec.get("name") or "grpoctl"), token, record)
        deleted = found.info.lifecycle_stage == "deleted"
        self._state = dataclasses.replace(
            self._state,
            state="done" if deleted else "live",
            error=DELETED if deleted else None,
            synced_status=record.status.value if deleted else self._state.synced_status,
            synced_ended=record.ended if deleted else self._state.synced_ended,
            store=store_name(self._run.home),
            experiment_id=found.info.experiment_id,
            mlflow_run_id=found.info.run_id,
        )
        write_state(self._run, self._state)
        if not deleted:
            self._mlflow_status = found.info.status
            # The newest value of a metric carries its step, which the public dictionary leaves out.
            self._newest = {metric.key: metric.step for metric in found.data.to_proto().metrics}
            self._describe(spec, provenance, found)
        self._opened = True

    def _known(self) -> Run | None:
        """The MLflow run noted in mlflow.json; None where there is none, or the store has lost it."""
        from mlflow.exceptions import MlflowException

        if self._state.mlflow_run_id is None or self._state.store != store_name(self._run.home):
            return None
        try:
            return self._client.get_run(self._state.mlflow_run_id)
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            return None

    def _find_or_create(self, name: str, token: str, record: StatusRecord) -> Run:
        """The run with our token, which a writer may have created without living to note its id; else a new one."""
        from mlflow.entities import ViewType

        experiment_id = _experiment_id(self._client, name, artifact_location(self._run.home))
        wanted = f"tags.`{payload.TOKEN_TAG}` = '{token}'"
        if found := self._client.search_runs([experiment_id], wanted, run_view_type=ViewType.ALL, max_results=1):
            return found[0]
        return self._client.create_run(
            experiment_id,
            start_time=round(record.started * 1000),
            tags={payload.TOKEN_TAG: token},
            run_name=self._run.id,
        )

    def _describe(self, spec: dict[str, Any], provenance: dict[str, Any], found: Run) -> None:
        """Params and tags. MLflow refuses to change a param, so those it has are left out."""
        from mlflow.entities import Param, RunTag

        run_id = found.info.run_id
        tags = payload.tags(self._run.id, spec, provenance)
        self._client.log_batch(run_id, tags=[RunTag(key, value) for key, value in tags.items()])
        params = [Param(key, value) for key, value in payload.params(spec).items() if key not in found.data.params]
        for batch in payload.batches(params, payload.PARAMS_PER_BATCH):
            self._client.log_batch(run_id, params=batch)

    def _write_rows(self) -> None:
        from mlflow.entities import Metric

        rows, offset = read_new(self._run.metrics, self._offset)
        now = round(time.time() * 1000)
        points = list(payload.points(rows, self._newest))
        for batch in payload.batches(points, payload.METRICS_PER_BATCH):
            metrics = [Metric(point.key, point.value, now, point.step) for point in batch]
            self._client.log_batch(self._state.mlflow_run_id, metrics=metrics)
            self._newest |= {point.key: point.step for point in batch}
        self._offset = offset
        if self._newest:
            self._state = dataclasses.replace(self._state, synced_step=max(self._newest.values()))

    def _write_status(self, record: StatusRecord) -> None:
        from mlflow.entities import RunTag

        run_id, wanted = self._state.mlflow_run_id, payload.MLFLOW_STATUS[record.status]
        told = (self._state.synced_status, self._state.synced_ended, self._mlflow_status)
        if told == (record.status.value, record.ended, wanted):
            return
        tags = [RunTag(key, value) for key, value in payload.status_tags(record).items()]
        self._client.log_batch(run_id, tags=tags)
        if record.ended is not None:
            self._client.set_terminated(run_id, wanted, end_time=round(record.ended * 1000))
        else:
            self._client.update_run(run_id, status=wanted)
        self._mlflow_status = wanted

    def _upload(self, *files: Path) -> None:
        """Log each file as an artifact, once. Last of all: an artifact store out of reach must not hold up metrics."""
        for file in files:
            if file not in self._uploaded and file.exists():
                self._client.log_artifact(self._state.mlflow_run_id, str(file))
                self._uploaded.add(file)


def _experiment_id(client: MlflowClient, name: str, location: str | None) -> str:
    """The id of the experiment of that name, which exists and is not deleted afterwards."""
    from mlflow.exceptions import MlflowException

    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        try:
            return str(client.create_experiment(name, artifact_location=location))
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":  # another writer was faster
                raise
            experiment = client.get_experiment_by_name(name)
            if experiment is None:
                raise
    if experiment.lifecycle_stage == "deleted":
        client.restore_experiment(experiment.experiment_id)
    return str(experiment.experiment_id)


def _spec(run: RunDir) -> dict[str, Any]:
    """The resolved spec as plain values."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        with storage_errors("read", run.spec):
            spec = YAML(typ="safe", pure=True).load(run.spec.read_text(encoding="utf-8"))
    except (YAMLError, UnicodeDecodeError) as error:
        raise StorageError(f"{run.spec}: damaged ({str(error).splitlines()[0]})") from error
    if not isinstance(spec, dict):
        raise StorageError(f"{run.spec}: a mapping belongs here, got {type(spec).__name__}")
    return spec
