"""One run directory to MLflow: everything that is in the files and not yet there; and which MLflow run belongs to a
directory, a run's or a study's, so that it never gets a second one.

What is here: `RunWriter.catch_up`, which can be repeated at any time and after any failure. What is not: when it is
called (mirror, sync), what the values are (payload), and a study's own rows (sweep_writer).
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpoctl.files import read_json, read_new, read_resolved_yaml
from grpoctl.runs import status
from grpoctl.runs.run_dir import RunDir
from grpoctl.runs.status import StatusRecord
from grpoctl.tracking import payload
from grpoctl.tracking.attachments import describe_experiment, log_data, log_model, log_tables, note_tags
from grpoctl.tracking.description import FINDING, end_row, ending_tags, experiment_note, owner, run_note
from grpoctl.tracking.mirror_state import Mirrored, MirrorState, read_state, write_state
from grpoctl.tracking.store import artifact_location, store_name

if TYPE_CHECKING:
    from mlflow.entities import Run
    from mlflow.tracking import MlflowClient

DELETED = "deleted in MLflow; nothing more is written there"


@dataclass(frozen=True, kw_only=True, slots=True)
class NewRun:
    """What a new MLflow run is made with; `started` is in seconds since the epoch."""

    experiment_id: str
    token: str
    name: str
    started: float
    user: str


def noted_run(client: MlflowClient, of: Mirrored, state: MirrorState) -> Run | None:
    """The MLflow run noted in mlflow.json; None where there is none, or the store has lost it."""
    from mlflow.exceptions import MlflowException

    if state.mlflow_run_id is None or state.store != store_name(of.home):
        return None
    try:
        return client.get_run(state.mlflow_run_id)
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        return None


def find_or_create(client: MlflowClient, new_run: NewRun) -> Run:
    """The run with this token, which a writer may have created without living to note its id; else a new one."""
    from mlflow.entities import ViewType

    wanted = f"tags.`{payload.TOKEN_TAG}` = '{new_run.token}'"
    if runs := client.search_runs([new_run.experiment_id], wanted, run_view_type=ViewType.ALL, max_results=1):
        return runs[0]
    return client.create_run(
        new_run.experiment_id,
        start_time=round(new_run.started * 1000),
        tags={payload.TOKEN_TAG: new_run.token, payload.USER_TAG: new_run.user},
        run_name=new_run.name,
    )


def state_with_run(of: Mirrored, state: MirrorState, run: Run) -> MirrorState:
    """The state once the MLflow run of a directory is known; one that the user deleted there is done with."""
    deleted = run.info.lifecycle_stage == "deleted"
    return dataclasses.replace(
        state,
        state="done" if deleted else "live",
        error=DELETED if deleted else None,
        store=store_name(of.home),
        experiment_id=run.info.experiment_id,
        mlflow_run_id=run.info.run_id,
    )


def describe(client: MlflowClient, run: Run, tags: Mapping[str, str], spec: Mapping[str, Any]) -> None:
    """Write tags, and the spec's leaves as params. MLflow refuses to change a param, so those it has are left out."""
    from mlflow.entities import Param, RunTag

    run_id = run.info.run_id
    client.log_batch(run_id, tags=[RunTag(key, value) for key, value in tags.items()])
    params = [Param(key, value) for key, value in payload.params(spec).items() if key not in run.data.params]
    for batch in payload.batches(params, payload.PARAMS_PER_BATCH):
        client.log_batch(run_id, params=batch)


def experiment_id(client: MlflowClient, of: Mirrored, name: str) -> str:
    """The id of the experiment of that name, which exists and is not deleted afterwards."""
    from mlflow.exceptions import MlflowException

    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        try:
            return str(client.create_experiment(name, artifact_location=artifact_location(of.home)))
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":  # another writer was faster
                raise
            experiment = client.get_experiment_by_name(name)
            if experiment is None:
                raise
    if experiment.lifecycle_stage == "deleted":
        client.restore_experiment(experiment.experiment_id)
    return str(experiment.experiment_id)


def is_complete(run: RunDir, state: MirrorState | None) -> bool:
    """Whether all of the run is in its store by its own note; true where it has not begun."""
    record = status.read(run.status)
    if record is None:
        return True
    if state is None or not state.done or state.store != store_name(run.home):
        return False
    return (record.status.value, record.ended) == (state.synced_status, state.synced_ended)


def is_stored(client: MlflowClient, of: Mirrored, state: MirrorState) -> bool:
    """Whether the store still has what the note says; one that the user deleted counts where that was noted."""
    run = noted_run(client, of, state)
    return run is not None and (run.info.lifecycle_stage == "deleted") == (state.error == DELETED)


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
        self._tags: dict[str, str] = {}
        self._attached: float | None = None  # the end whose tables and model were written
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
        result = (read_json(self._run.result) or {}) if record.status.ended else {}
        if result:
            self._write_ending(result)
        self._write_status(record)
        self._upload(self._run.spec, self._run.provenance)
        if record.status.ended:
            self._upload(self._run.result)
        self._upload(*sorted(self._run.pictures.glob("step-*.png")), folder=self._run.pictures.name)
        if result and record.ended != self._attached:
            self._attach(result)
            self._attached = record.ended
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
        stored = noted_run(self._client, self._run, self._state) or self._find_or_create(spec, provenance, record)
        self._state = state_with_run(self._run, self._state, stored)
        deleted = self._state.error == DELETED
        if deleted:
            self._state = dataclasses.replace(self._state, synced_status=record.status.value, synced_ended=record.ended)
        write_state(self._run, self._state)
        if not deleted:
            self._mlflow_status = stored.info.status
            # The newest value of a metric carries its step, which the public dictionary leaves out.
            self._newest = {metric.key: metric.step for metric in stored.data.to_proto().metrics}
            if self._parent is None:
                describe_experiment(self._client, stored.info.experiment_id, experiment_note(spec))
            tags = {**payload.tags(self._run.id, spec, provenance), payload.USER_TAG: owner(self._run.path)}
            tags |= note_tags(run_note(self._run.id, spec, provenance, {}), stored.data.tags)
            if self._parent is not None:
                tags[payload.PARENT_TAG] = self._parent.mlflow_run_id
            describe(self._client, stored, tags, spec)
            log_data(self._client, stored, spec, provenance)
            self._tags = {**stored.data.tags, **tags}
        self._opened = True

    def _find_or_create(self, spec: dict[str, Any], provenance: dict[str, Any], record: StatusRecord) -> Run:
        parent, run = self._parent, self._run
        name = str(spec.get("name") or "grpoctl")
        new_run = NewRun(
            experiment_id=parent.experiment_id if parent else experiment_id(self._client, run, name),
            token=payload.child_token(run.id, parent.token) if parent else payload.token(run.id, provenance),
            name=run.id,
            started=record.started,
            user=owner(run.path),
        )
        return find_or_create(self._client, new_run)

    def _write_rows(self) -> None:
        rows, offset = read_new(self._run.metrics, self._offset)
        self._write_points(rows)
        self._offset = offset
        if self._newest:
            self._state = dataclasses.replace(self._state, synced_step=max(self._newest.values()))

    def _write_points(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Log the values of these rows that MLflow does not have yet."""
        from mlflow.entities import Metric

        now = round(time.time() * 1000)
        points = list(payload.points(rows, self._newest))
        for batch in payload.batches(points, payload.METRICS_PER_BATCH):
            metrics = [Metric(point.key, point.value, now, point.step) for point in batch]
            self._client.log_batch(self._state.mlflow_run_id, metrics=metrics)
            self._newest |= {point.key: point.step for point in batch}

    def _write_ending(self, result: Mapping[str, Any]) -> None:
        """Log what is known at the end only, and say in tags and in the description what came out."""
        from mlflow.entities import RunTag

        run_id = self._state.mlflow_run_id
        self._write_points(end_row(result))
        spec, provenance = read_resolved_yaml(self._run.spec), read_json(self._run.provenance) or {}
        tags = ending_tags(result)
        tags |= note_tags(run_note(self._run.id, spec, provenance, result), self._tags)
        new = [RunTag(key, value) for key, value in tags.items() if self._tags.get(key) != value]
        if new:
            self._client.log_batch(run_id, tags=new)
        for key in [key for key in self._tags if key.startswith(FINDING) and key not in tags]:
            self._client.delete_tag(run_id, key)  # of an earlier end, before the run was resumed
            del self._tags[key]
        self._tags |= tags

    def _attach(self, result: Mapping[str, Any]) -> None:
        """Write tables and the model. After all metrics: an artifact store out of reach must not hold them up."""
        stored = self._client.get_run(self._state.mlflow_run_id)
        log_tables(self._client, stored.info.run_id, self._run, result)
        log_model(self._client, stored, self._run, read_resolved_yaml(self._run.spec))

    def _write_status(self, record: StatusRecord) -> None:
        from mlflow.entities import RunTag

        run_id, wanted = self._state.mlflow_run_id, payload.mlflow_status(record.status)
        written = (self._state.synced_status, self._state.synced_ended, self._mlflow_status)
        if written == (record.status.value, record.ended, wanted):
            return
        tags = [RunTag(key, value) for key, value in payload.status_tags(record).items()]
        self._client.log_batch(run_id, tags=tags)
        if record.ended is not None:
            self._client.set_terminated(run_id, wanted, end_time=round(record.ended * 1000))
        else:
            self._client.update_run(run_id, status=wanted)
        self._mlflow_status = wanted

    def _upload(self, *files: Path, folder: str | None = None) -> None:
        """Log each file as an artifact, once. Last of all: an artifact store out of reach must not hold up metrics."""
        for file in files:
            if file not in self._uploaded and file.exists():
                self._client.log_artifact(self._state.mlflow_run_id, str(file), folder)
                self._uploaded.add(file)
