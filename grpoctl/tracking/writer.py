"""One run directory to MLflow: everything that is in the files and not yet there.

What is here: `RunWriter.catch_up`, which can be repeated at any time and after any failure. What is not: when it is
called (mirror, sync), what the values are (payload), and which MLflow run it is (lookup).
"""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpoctl.files import read_json, read_new, read_resolved_yaml
from grpoctl.runs import status
from grpoctl.runs.run_dir import RunDir
from grpoctl.runs.status import StatusRecord
from grpoctl.tracking import payload
from grpoctl.tracking.lookup import (
    DELETED,
    Birth,
    describe,
    experiment_id,
    find_or_create,
    known,
    state_with_run,
)
from grpoctl.tracking.mirror_state import MirrorState, read_state, write_state

if TYPE_CHECKING:
    from mlflow.entities import Run
    from mlflow.tracking import MlflowClient


@dataclass(frozen=True, kw_only=True, slots=True)
class Parent:
    """The MLflow run of a study, which is the parent of the study's runs; `token` is what marks the study."""

    mlflow_run_id: str
    experiment_id: str
    token: str


class RunWriter:
    """Writes one run to MLflow. After an exception make a new one: MLflow may have taken more than it confirmed."""

    def __init__(self, run: RunDir, client: MlflowClient, parent: Parent | None = None) -> None:
        self._run = run
        self._client = client
        self._parent = parent
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
        spec = read_resolved_yaml(self._run.spec)
        provenance = read_json(self._run.provenance) or {}
        found = known(self._client, self._run, self._state) or self._find_or_create(spec, provenance, record)
        self._state = state_with_run(self._run, self._state, found)
        deleted = self._state.error == DELETED
        if deleted:
            self._state = dataclasses.replace(self._state, synced_status=record.status.value, synced_ended=record.ended)
        write_state(self._run, self._state)
        if not deleted:
            self._mlflow_status = found.info.status
            # The newest value of a metric carries its step, which the public dictionary leaves out.
            self._newest = {metric.key: metric.step for metric in found.data.to_proto().metrics}
            tags = payload.tags(self._run.id, spec, provenance)
            if self._parent is not None:
                tags[payload.PARENT_TAG] = self._parent.mlflow_run_id
            describe(self._client, found, tags, spec)
        self._opened = True

    def _find_or_create(self, spec: dict[str, Any], provenance: dict[str, Any], record: StatusRecord) -> Run:
        parent, run = self._parent, self._run
        name = str(spec.get("name") or "grpoctl")
        birth = Birth(
            experiment_id=parent.experiment_id if parent else experiment_id(self._client, run, name),
            token=payload.child_token(run.id, parent.token) if parent else payload.token(run.id, provenance),
            name=run.id,
            started=record.started,
        )
        return find_or_create(self._client, birth)

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

        run_id, wanted = self._state.mlflow_run_id, payload.mlflow_status(record.status)
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
