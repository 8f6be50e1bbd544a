"""Which MLflow run is a directory's, so that it never gets a second one; and whether it has all of it.

What is here: looking up, creating and describing experiments and runs, for runs and studies alike. What is not: their
rows and how they stand (writer, sweep_writer).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from grpoctl.runs import status
from grpoctl.runs.run_dir import RunDir
from grpoctl.tracking import payload
from grpoctl.tracking.mirror_state import Mirrored, MirrorState
from grpoctl.tracking.store import artifact_location, store_name

if TYPE_CHECKING:
    from mlflow.entities import Run
    from mlflow.tracking import MlflowClient

DELETED = "deleted in MLflow; nothing more is written there"


@dataclass(frozen=True, kw_only=True, slots=True)
class Birth:
    """What a new MLflow run is made with; `started` is in seconds since the epoch."""

    experiment_id: str
    token: str
    name: str
    started: float


def known(client: MlflowClient, of: Mirrored, state: MirrorState) -> Run | None:
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


def find_or_create(client: MlflowClient, birth: Birth) -> Run:
    """The run with this token, which a writer may have created without living to note its id; else a new one."""
    from mlflow.entities import ViewType

    wanted = f"tags.`{payload.TOKEN_TAG}` = '{birth.token}'"
    if found := client.search_runs([birth.experiment_id], wanted, run_view_type=ViewType.ALL, max_results=1):
        return found[0]
    return client.create_run(
        birth.experiment_id,
        start_time=round(birth.started * 1000),
        tags={payload.TOKEN_TAG: birth.token},
        run_name=birth.name,
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


def is_told(run: RunDir, state: MirrorState | None) -> bool:
    """Whether all of the run is in its store by its own note; true where it has not begun."""
    record = status.read(run.status)
    if record is None:
        return True
    if state is None or not state.done or state.store != store_name(run.home):
        return False
    return (record.status.value, record.ended) == (state.synced_status, state.synced_ended)


def is_there(client: MlflowClient, of: Mirrored, state: MirrorState) -> bool:
    """Whether the store still has what the note says; one that the user deleted counts where that was noted."""
    found = known(client, of, state)
    return found is not None and (found.info.lifecycle_stage == "deleted") == (state.error == DELETED)
