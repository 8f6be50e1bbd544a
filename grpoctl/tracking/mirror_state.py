"""How far the copy of a run or study in MLflow has come: `mlflow.json`.

Imports no mlflow; writing to MLflow is not here.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from core.errors import StorageError
from grpoctl.credentials import without_credentials
from grpoctl.files import read_json, replace_json
from grpoctl.runs.run_dir import Home

SCHEMA = 1

State = Literal["live", "done", "behind"]


class Mirrored(Protocol):
    """A directory that has a copy in MLflow: a run's or a study's."""

    @property
    def path(self) -> Path: ...
    @property
    def id(self) -> str: ...
    @property
    def home(self) -> Home: ...
    @property
    def mlflow(self) -> Path: ...
    @property
    def mirror_lock(self) -> Path: ...
    @property
    def mirror_log(self) -> Path: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class MirrorState:
    """What MLflow has of the run or study.

    `state`: live (written up to `synced_step`, more will come), done (all of it is there) or behind (`error` says why).
    `store` is where `mlflow_run_id` is, without credentials. `synced_status` and `synced_ended` are what MLflow knows
    of status.json or sweep.json. `synced_files` stands for the artifacts of a study as they were sent.
    """

    state: State = "live"
    error: str | None = None
    store: str | None = None
    experiment_id: str | None = None
    mlflow_run_id: str | None = None
    synced_step: int | None = None
    synced_status: str | None = None
    synced_ended: float | None = None
    synced_files: str | None = None

    @property
    def done(self) -> bool:
        """Whether MLflow has everything."""
        return self.state == "done"


def read_state(of: Mirrored) -> MirrorState | None:
    """The state; None where nothing was mirrored yet, and where the file is damaged: MLflow is then asked again."""
    try:
        document = read_json(of.mlflow)
    except StorageError:
        return None
    if document is None or document.pop("schema", None) != SCHEMA:
        return None
    known = {entry.name for entry in dataclasses.fields(MirrorState)}
    return MirrorState(**{key: value for key, value in document.items() if key in known})


def write_state(of: Mirrored, state: MirrorState) -> None:
    """Replace `mlflow.json`. Raises StorageError where the disk is full or read-only."""
    replace_json(of.mlflow, {"schema": SCHEMA, **dataclasses.asdict(state)}, durable=False)


def one_line(error: BaseException, *urls: str) -> str:
    """The error in one line of at most 300 characters, without credentials; those of `urls` are known."""
    text = " ".join(str(error).split()) or type(error).__name__
    return without_credentials(text, *urls)[:300]
