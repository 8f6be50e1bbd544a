"""Reads one run out of any MLflow store, whoever wrote it: for `grpoctl diagnose`. Writes and creates nothing.

What is here: finding the run and paging its metrics. What is not: what they mean (grpoctl.diagnose.readers).
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from core.errors import NotFoundError, StorageError
from grpoctl.credentials import masked
from grpoctl.tracking.mirror_state import one_line
from grpoctl.tracking.store import client_of, sqlite_file

if TYPE_CHECKING:
    from mlflow.entities import Run
    from mlflow.tracking import MlflowClient

PAGE = 1000  # MLflow's limit of one search
_NAMED = 6  # runs that an error names
# What MLflow takes for no folder, by the word before the colon.
_STORES = ("http", "https", "sqlite", "postgresql", "mysql", "mssql", "databricks", "databricks-uc", "uc")
_TABLES = {"runs", "metrics", "params", "experiments"}


@dataclass(frozen=True, kw_only=True, slots=True)
class LoggedRun:
    """One MLflow run with the whole history of its metrics: (step, value) in the order they were logged."""

    run_id: str
    name: str
    experiment: str
    status: str
    params: Mapping[str, str]
    tags: Mapping[str, str]
    history: Mapping[str, Sequence[tuple[int, float]]]


def read_run(uri: str, wanted: str | None) -> LoggedRun:
    """The run of that id, unique beginning of an id or name; the only one of the store where `wanted` is None.

    Raises NotFoundError where there is no store, no such run or several; StorageError where the store does not answer.
    """
    if (folder := _folder(uri)) is not None and not folder.is_dir():  # MLflow would create it
        raise NotFoundError(f"{masked(str(folder))}: {'no folder of MLflow' if folder.exists() else 'no such store'}")
    file = sqlite_file(uri)
    if file is not None and not is_store(file):
        raise NotFoundError(f"{file}: {'no MLflow store' if file.exists() else 'no such file'}")
    try:
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # reading an old mlruns folder harms nobody
        client = client_of(uri)
        with _quiet():
            return _logged(client, _wanted_run(client, wanted, uri))
    except (NotFoundError, StorageError):
        raise
    except Exception as error:  # the boundary around the tracker: one clear line
        raise StorageError(_why(error, uri)) from error


def _folder(uri: str) -> Path | None:
    """The folder of a file store, a path or file:; None for every other store."""
    scheme, colon, rest = uri.partition(":")
    if scheme == "file" and colon:
        return Path(unquote(urlsplit(uri).path if rest.startswith("//") else rest))
    return None if "/" not in scheme and scheme.partition("+")[0] in _STORES else Path(uri)


def is_store(file: Path) -> bool:
    """Whether a SQLite file has MLflow's tables; looks without MLflow, and changes nothing."""
    try:
        with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True, timeout=5)) as store:
            names = {name for (name,) in store.execute("select name from sqlite_master where type = 'table'")}
    except (sqlite3.Error, OSError, ValueError):
        return False
    return names >= _TABLES


@contextmanager
def _quiet() -> Iterator[None]:
    """Meanwhile nothing is logged: of a damaged experiment MLflow prints a traceback, through the root logger."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        logging.disable(before)


def _wanted_run(client: MlflowClient, wanted: str | None, uri: str) -> Run:
    """The run that is meant. Raises NotFoundError, naming some of those there are."""
    from mlflow.exceptions import MlflowException

    if wanted is not None:
        try:
            return client.get_run(wanted)
        except MlflowException as error:
            if error.error_code not in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE", "BAD_REQUEST"):
                raise
    runs = _runs(client)
    fitting = [run for run in runs if wanted is None or run.info.run_id.startswith(wanted)]
    fitting = fitting or [run for run in runs if run.info.run_name == wanted]
    if len(fitting) == 1:
        return fitting[0]
    where = masked(uri, user=False)
    some = ", ".join(f"{run.info.run_id} ({run.info.run_name})" for run in (fitting or runs)[:_NAMED])
    more = ", ..." if len(fitting or runs) > _NAMED else ""
    if not runs:
        raise NotFoundError(f"{where} has no runs")
    if fitting:
        raise NotFoundError(f"{len(fitting)} runs in {where}; name one: mlflow:{where}#RUN_ID, of {some}{more}")
    raise NotFoundError(f"no run {wanted!r} in {where}; there are {some}{more}")


def _runs(client: MlflowClient) -> list[Run]:
    """Every run of the store, newest first, page by page."""
    experiments, token = [], None
    while True:
        page = client.search_experiments(max_results=PAGE, page_token=token)
        experiments += [experiment.experiment_id for experiment in page]
        if not (token := page.token):
            break
    runs: list[Run] = []
    while experiments:
        batch = client.search_runs(experiments, max_results=PAGE, page_token=token)
        runs += batch
        if not (token := batch.token):
            break
    return runs


def _logged(client: MlflowClient, run: Run) -> LoggedRun:
    history = {}
    for key in sorted(run.data.metrics):
        points = client.get_metric_history(run.info.run_id, key)
        ordered = sorted(points, key=lambda point: (point.step, point.timestamp))
        history[key] = [(int(point.step), float(point.value)) for point in ordered]
    return LoggedRun(
        run_id=run.info.run_id,
        name=run.info.run_name or run.info.run_id,
        experiment=client.get_experiment(run.info.experiment_id).name,
        status=run.info.status,
        params=run.data.params,
        tags=run.data.tags,
        history=history,
    )


def _why(error: Exception, uri: str) -> str:
    """One line on a store that cannot be read."""
    where, line = masked(uri, user=False), one_line(error, uri)
    if "out-of-date database schema" in str(error):
        return f"{where} is of another version of MLflow; on a copy of it: mlflow db upgrade {where}"
    if "Max retries exceeded" in line:
        return f"{where} does not answer; start its server, or name another store: mlflow:URI#RUN_ID"
    return f"{where}: {line}"
