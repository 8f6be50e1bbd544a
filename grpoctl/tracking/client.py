"""What MLflow says about our runs, for `doctor` and the tests. Not here: writing (writer), the address (store)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from grpoctl.runs.run_dir import Home
from grpoctl.tracking.mirror_state import one_line
from grpoctl.tracking.store import open_client, sqlite_file, store_name, store_uri


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreCheck:
    """`state`: ok, absent (nothing was recorded yet) or unreachable; `store` is the address without credentials."""

    store: str
    state: Literal["ok", "absent", "unreachable"]
    error: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredRun:
    """One MLflow run; `metrics` are the newest values."""

    mlflow_run_id: str
    experiment: str
    name: str
    status: str
    params: Mapping[str, str]
    tags: Mapping[str, str]
    metrics: Mapping[str, float]
    artifact_uri: str


def check_store(home: Home) -> StoreCheck:
    """Whether the store answers; creates nothing."""
    name = store_name(home)
    if _is_absent(home):
        return StoreCheck(store=name, state="absent")
    try:
        open_client(home).search_experiments(max_results=1)
    except Exception as error:  # noqa: BLE001  the boundary around the tracker
        return StoreCheck(store=name, state="unreachable", error=one_line(error))
    return StoreCheck(store=name, state="ok")


def runs_of(home: Home) -> list[StoredRun]:
    """Every run the mirror wrote to the store, newest first; none where there is no store.

    Raises what MLflow raises.
    """
    if _is_absent(home):
        return []
    client = open_client(home)
    names = {experiment.experiment_id: experiment.name for experiment in client.search_experiments()}
    return [
        StoredRun(
            mlflow_run_id=run.info.run_id,
            experiment=names[run.info.experiment_id],
            name=run.info.run_name,
            status=run.info.status,
            params=run.data.params,
            tags=run.data.tags,
            metrics=run.data.metrics,
            artifact_uri=run.info.artifact_uri,
        )
        for run in client.search_runs(list(names), max_results=1000)
        if "grpoctl.run_id" in run.data.tags
    ]


def history(home: Home, mlflow_run_id: str, key: str) -> list[tuple[int, float]]:
    """(step, value) of every point the store has of one metric, by step: a step that is there twice comes twice."""
    points = open_client(home).get_metric_history(mlflow_run_id, key)
    return sorted((point.step, point.value) for point in points)


def _is_absent(home: Home) -> bool:
    file = sqlite_file(store_uri(home))
    return file is not None and not file.exists()
