"""Synthetic run directories, and an MLflow store that was created once for all tests of this folder."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from grpoctl.runs import status
from grpoctl.runs.records import RowWriter, replace_json
from grpoctl.runs.run_dir import Home, RunDir
from grpoctl.runs.status import Status, StatusRecord
from grpoctl.tracking.store import open_client

SPEC = """\
name: p31
revision: 2
title: ''
profile: tiny
seed: 3
model: {source: 'builtin:tiny', lora: null}
task: {name: workflow-dsl, domains: {math: 2.0, qa: 1.0}}
stages:
  grpo: {learning_rate: 2.0e-06, skip_without_signal: true, betas: [0.9, 0.95]}
recorded: {}
"""


class SyntheticRun:
    """A run directory written by hand, as the trainer would write it."""

    def __init__(self, home: Home, name: str = "p31") -> None:
        self.dir: RunDir = home.create_run(f"{name}-tiny-s3-0123abcd")
        self.dir.spec.write_text(SPEC.replace("name: p31", f"name: {name}"))
        git = {"commit": "c" * 40, "dirty": True, "diff": "", "diff_cut": False, "remote": None}
        first = {"started": 1000.0, "hostname": "host", "pid": 1, "git": git}
        identity = {"experiment": name, "recorded_as": f"{name}@2", "spec_sha": "0123abcd" * 8}
        replace_json(self.dir.provenance, {"schema": 1, **identity, "attempts": [first]})
        self.say(Status.RUNNING)

    def rows(self, first: int, last: int) -> None:
        """Rows of the steps first..last, as `row_of` has them."""
        with RowWriter(self.dir.metrics) as writer:
            writer.append(*(row_of(step) for step in range(first, last + 1)))

    def say(self, state: Status, message: str = "") -> None:
        """Write the status; an ending also has a result."""
        ended = 2000.0 if state.ended else None
        if state.ended:
            replace_json(self.dir.result, {"status": state})
        status.write(self.dir.status, StatusRecord(status=state, pid=1, started=1000.0, ended=ended, message=message))


def row_of(step: int) -> dict[str, object]:
    """loss = step / 10, missing at step 2; eval/reward at even steps only; a word, which is no metric."""
    evaluation = {"eval/reward": step / 100} if step % 2 == 0 else {}
    return {"step": step, "loss": None if step == 2 else step / 10, "update": 1, "note": "text", **evaluation}


def _losses(*steps: int) -> list[tuple[int, float]]:
    return [(step, step / 10) for step in steps if step != 2]


def _eventually(holds: Callable[[], object], seconds: float = 20.0) -> None:
    """Return as soon as it holds; fail when it does not within the time. For what another process does."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "did not come true in time"
        time.sleep(0.02)


@pytest.fixture(autouse=True)
def _no_settings_of_the_tester(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "MLFLOW_TRACKING_URI",
        "MLFLOW_HTTP_REQUEST_TIMEOUT",
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES",
        "GRPOCTL_HOME",
    ):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def store_template(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home with an empty store; creating one takes a second and a half."""
    home = Home(path=tmp_path_factory.mktemp("template"))
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        open_client(home)
    return home


@pytest.fixture
def home(tmp_path: Path, store_template: Home) -> Home:
    """A home with an empty store."""
    home = Home(path=tmp_path / ".grpoctl")
    home.path.mkdir()
    shutil.copy(store_template.mlflow_store, home.mlflow_store)
    shutil.copy(store_template.mlflow_version, home.mlflow_version)
    return home


@pytest.fixture
def run(home: Home) -> SyntheticRun:
    """A run of p31 that says RUNNING and has no rows yet."""
    return SyntheticRun(home)


@pytest.fixture
def new_run(home: Home) -> Callable[[str], SyntheticRun]:
    """One more run, of the experiment of that name."""
    return lambda name: SyntheticRun(home, name)


@pytest.fixture
def losses() -> Callable[..., list[tuple[int, float]]]:
    """What MLflow should have of the loss after these steps."""
    return _losses


@pytest.fixture
def eventually() -> Callable[..., None]:
    """Waits for what another process does."""
    return _eventually
