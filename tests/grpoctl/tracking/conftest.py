"""Synthetic run and study directories, and an MLflow store that was created once for all tests of this folder."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from grpoctl.files import RowWriter, replace_json
from grpoctl.runs import status
from grpoctl.runs.run_dir import Home, RunDir
from grpoctl.runs.status import Status, StatusRecord
from grpoctl.runs.study_dir import StudyDir, create_study
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

    def __init__(self, run: RunDir, name: str = "p31", **more: object) -> None:
        self.dir = run
        self.dir.spec.write_text(SPEC.replace("name: p31", f"name: {name}"))
        git = {"commit": "c" * 40, "dirty": True, "diff": "", "diff_cut": False, "remote": None}
        first = {"started": 1000.0, "hostname": "host", "pid": 1, "git": git}
        identity = {"experiment": name, "recorded_as": f"{name}@2", "spec_sha": "0123abcd" * 8, **more}
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


class SyntheticStudy:
    """A study directory written by hand, as the driver would write it."""

    def __init__(self, home: Home) -> None:
        self.dir: StudyDir = create_study(home, "demo-tiny-1a2b3c4d")
        self.document: dict[str, Any] = {
            "schema": 1, "study": self.dir.id, "sweep": "demo", "revision": 3, "sweep_sha": "1a2b3c4d" * 8,
            "profile": "tiny", "experiment": "p31", "status": "RUNNING", "message": "", "started": 1000.0,
            "ended": None, "metric": "eval/reward", "direction": "maximize", "sampler": "tpe", "total": 24,
            "trials": [], "best": None,
        }  # fmt: skip
        self.say("RUNNING")
        self.dir.spec.write_text(
            "name: demo\nrevision: 3\naxes: {stages.grpo.beta: {values: [0.0, 0.1]}}\ntrials: 24\n"
        )

    def say(self, state: str, message: str = "", **more: object) -> None:
        """Write sweep.json."""
        ended = None if state == "RUNNING" else 3000.0
        self.document |= {"status": state, "message": message, "ended": ended, **more}
        replace_json(self.dir.state, self.document)

    def trial(self, number: int, state: str = "RUNNING", score: float | None = None) -> None:
        """Note a trial of seeds 0 and 1, or how it stands now."""
        trials = {trial["number"]: trial for trial in self.document["trials"]}
        trials[number] = {"number": number, "status": state, "score": score, "seeds": [0, 1], "params": {}}
        self.say(self.document["status"], trials=[trials[key] for key in sorted(trials)])

    def run(self, number: int, seed: int) -> SyntheticRun:
        """One of a trial's runs, which says RUNNING."""
        run = self.dir.run(number, seed)
        run.path.mkdir(parents=True, exist_ok=True)
        return SyntheticRun(run, study=self.dir.id, trial=number)

    def ended(self, number: int, state: Status = Status.COMPLETED, score: float | None = 0.5) -> list[RunDir]:
        """A trial that has ended, with four rows in each of its two runs."""
        runs = [self.run(number, seed) for seed in (0, 1)]
        for run in runs:
            run.rows(0, 3)
            run.say(state)
        self.trial(number, str(state), score)
        return [run.dir for run in runs]


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
    return _new_run(home, "p31")


@pytest.fixture
def new_run(home: Home) -> Callable[[str], SyntheticRun]:
    """One more run, of the experiment of that name."""
    return lambda name: _new_run(home, name)


@pytest.fixture
def study(home: Home) -> SyntheticStudy:
    """A study that says RUNNING and has no trial yet."""
    return SyntheticStudy(home)


def _new_run(home: Home, name: str) -> SyntheticRun:
    return SyntheticRun(home.create_run(f"{name}-tiny-s3-0123abcd"), name)


@pytest.fixture
def losses() -> Callable[..., list[tuple[int, float]]]:
    """What MLflow should have of the loss after these steps."""
    return _losses


@pytest.fixture
def eventually() -> Callable[..., None]:
    """Waits for what another process does."""
    return _eventually
