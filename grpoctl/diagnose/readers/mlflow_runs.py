"""A run in an MLflow store, ours or one that TRL or Hugging Face logged -> a case.

`mlflow:RUN_ID` (MLFLOW_TRACKING_URI, else our home's store), `mlflow:URI#RUN_ID`, a path to mlflow.db, or an mlruns
folder, where the store has one run. What is not here: talking to MLflow (grpoctl.tracking.reading).
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.config import RunSpec
from core.errors import SpecError
from core.health.case import Case, case_of
from grpoctl.diagnose.readers.base import Reading, Source
from grpoctl.diagnose.readers.metric_names import name_of
from grpoctl.diagnose.readers.text import head
from grpoctl.diagnose.readers.trainer_log import Entry, Known, case_of_entries, is_grpo_configuration, plain_value
from grpoctl.runs.run_dir import Home

if TYPE_CHECKING:
    from grpoctl.tracking.reading import LoggedRun

PREFIX = "mlflow:"
_OURS = "grpoctl.run_id"  # the tag of a run that our mirror wrote
_LARGEST = 1.7e308  # MLflow stores an infinity as the largest float
_SQLITE = b"SQLite format 3\0"


class _MlflowRun:
    """A run by its id, in the store that the environment or the source names."""

    name = "mlflow"
    looks_for = "a run, or a store of one"

    def knows(self, source: Source) -> bool:
        """By the word in front, a SQLite file with MLflow's tables, or a folder of experiments."""
        return source.name.startswith(PREFIX) or _is_store(source.path)

    def read(self, source: Source) -> Reading:
        """The whole history of its metrics, and its params as settings."""
        from grpoctl.tracking.reading import read_run

        run = read_run(*_address(source))
        if not run.history:
            raise SpecError(f"MLflow run {run.run_id} ({run.name}) has no metrics")
        case, notes = _ours(run) if _OURS in run.tags else _theirs(run)
        if run.status not in ("FINISHED", "RUNNING"):
            notes.append(f"MLflow says the run is {run.status}")
        if _OURS in run.tags:
            notes.append(f"MLflow has no completions: grpoctl diagnose {run.tags[_OURS]} reads them from the run")
        return Reading(
            case=case,
            kind=self.name,
            source=f"mlflow run {run.run_id} ({run.experiment}/{run.name})",
            spec=run.tags.get("grpoctl.experiment"),
            notes=tuple(notes),
        )


READER = _MlflowRun()


def _is_store(path: Path | None) -> bool:
    """Whether the path is a SQLite file that is MLflow's, or a folder whose folders are experiments of a file store."""
    if path is None:
        return False
    with suppress(OSError):
        if path.is_file() and head(path, len(_SQLITE)) == _SQLITE:
            return True
        if path.is_dir():
            numbered = [entry for entry in path.iterdir() if entry.name.isdigit()]
            return any((experiment / "meta.yaml").is_file() for experiment in numbered)
    return False


def _address(source: Source) -> tuple[str, str | None]:
    """(tracking URI, run or None for the only one). Raises SpecError for a source that names neither."""
    from grpoctl.tracking.store import store_uri

    if not source.name.startswith(PREFIX):
        assert source.path is not None  # knows() came first
        return _uri(source.path), None
    uri, mark, run = source.name.removeprefix(PREFIX).rpartition("#")
    if mark and uri:
        place = Path(os.path.expanduser(uri))
        return (_uri(place) if "://" not in uri and place.exists() else uri), run or None
    if not run:
        raise SpecError(f"got {source.name!r}, expected mlflow:RUN_ID or mlflow:URI#RUN_ID")
    if "://" in run:
        raise SpecError(f"got the address {run} without a run, expected mlflow:{run}#RUN_ID")
    return store_uri(Home.locate()), run


def _uri(path: Path) -> str:
    """A path as a tracking URI."""
    from grpoctl.tracking.store import sqlite_uri

    full = path.resolve()
    return full.as_uri() if full.is_dir() else sqlite_uri(full)


def _entries(history: Mapping[str, Sequence[tuple[int, float]]]) -> tuple[list[Entry], int]:
    """The points as entries, one a step, the last value of a step standing; and how many steps had several."""
    by_step: dict[int, dict[str, float | None]] = {}
    repeated: set[int] = set()
    for key, points in history.items():
        for step, value in points:
            row = by_step.setdefault(step, {})
            if key in row and name_of(key) is not None:  # `epoch` ends a run once more
                repeated.add(step)
            row[key] = value if abs(value) < _LARGEST else math.nan
    return [Entry(step=step, cells=by_step[step]) for step in sorted(by_step)], len(repeated)


def _ours(run: LoggedRun) -> tuple[Case, list[str]]:
    """A run our mirror wrote: its metrics have our names, its params are its spec."""
    entries, repeated = _entries(run.history)
    rows = [{"step": float(entry.step), **entry.cells} for entry in entries]
    notes = [f"{repeated} steps are there more than once: the last value stands"] if repeated else []
    try:
        return case_of(_spec(run.params), rows), notes
    except ValueError:  # pydantic's too
        return Case(rows=rows), [*notes, "its params are no spec of this version, so its settings are not known"]


def _spec(params: Mapping[str, str]) -> RunSpec:
    """The spec that the mirror took apart: dotted keys, values as JSON but for text."""
    tree: dict[str, Any] = {}
    for key, text in params.items():
        node = tree
        *parents, leaf = key.split(".")
        for parent in parents:
            node = node.setdefault(parent, {})
        try:
            node[leaf] = json.loads(text)
        except ValueError:
            node[leaf] = text
    return RunSpec.model_validate(tree)


def _theirs(run: LoggedRun) -> tuple[Case, list[str]]:
    """A run that Hugging Face's callback wrote: its params are the model's configuration and the trainer's own."""
    entries, repeated = _entries(_without_totals(run.history))
    arguments = {name: plain_value(text) for name, text in run.params.items()}
    case, notes = case_of_entries(entries, Known(arguments=arguments))
    if repeated:
        notes.append(f"{repeated} steps are there more than once (a resumed run): the last value stands")
    if not is_grpo_configuration(arguments):
        notes.append("its params are not those of a GRPO trainer: say what you know with --set KEY=VALUE")
    return case, notes


def _without_totals(history: Mapping[str, Sequence[tuple[int, float]]]) -> dict[str, Sequence[tuple[int, float]]]:
    """The metrics of steps: the totals that end a run stand at its last step, beside that step's own."""
    return {key: points for key, points in history.items() if not key.startswith("train_") and key != "total_flos"}
