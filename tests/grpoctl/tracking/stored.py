"""What a store has of our runs, as the tests look at it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from grpoctl.runs.run_dir import Home
from grpoctl.tracking.store import check_store, open_client


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


def runs_of(home: Home) -> list[StoredRun]:
    """Every run the mirror wrote to the store, newest first; none where there is no store.

    Raises what MLflow raises.
    """
    if check_store(home).state == "absent":
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
