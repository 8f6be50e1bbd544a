"""The command line in this process: its exit code and its two streams. Nothing here trains or starts a process."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from core.config import RunSpec
from grpoctl.app import main
from grpoctl.config import load
from grpoctl.runs import status
from grpoctl.runs.launch import Launch, prepare
from grpoctl.runs.run_dir import Home, RunDir
from grpoctl.runs.status import Status, StatusRecord
from tests.conftest import Recorded


@dataclass(frozen=True, kw_only=True, slots=True)
class Said:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The one JSON document on standard output."""
        return json.loads(self.out)


Grpoctl = Callable[..., Said]
FEW = ("task.eval_prompts=6", "task.train_prompts=8")
MOVED = 0.2  # of an adapter that says something else, by any processor's rounding


@pytest.fixture
def grpoctl(tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Grpoctl:
    """Runs `grpoctl ARGV` in an empty folder whose home is `home`."""
    for name in ("GRPOCTL_HOME", "GRPOCTL_DEBUG", "MLFLOW_TRACKING_URI", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)

    def run(*argv: str) -> Said:
        monkeypatch.setattr(sys, "argv", ["grpoctl", *argv])
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capsys.readouterr()
        assert end.value.code is None or isinstance(end.value.code, int)
        return Said(code=end.value.code or 0, out=out, err=err)

    return run


@pytest.fixture
def one_thread() -> None:
    """Small models on one core: threads only wait for each other."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture
def weights(recorded: Recorded) -> RunDir:
    """A run of p31 with exported weights, which are not those it started from."""
    import torch

    from core.assemble import build_policy
    from grpoctl.config import read_resolved
    from grpoctl.exports.weights import note, whole_folder, write_card

    run = recorded(**dict(text.split("=") for text in FEW))
    policy = build_policy(read_resolved(run.spec))
    with torch.no_grad():
        for name, weight in policy.trainable().items():
            weight.add_(MOVED if "lora_B" in name else 0.0)
    with whole_folder(run.adapter) as draft:
        policy.export(draft)
        note(draft, run, 2)
    write_card(run, run.adapter, merged=False)
    return run


def keep(run: RunDir, step: int, *, moved: float) -> None:
    """A checkpoint of the run, whose adapter was moved by so much; MOVED makes the weights that `weights` exports."""
    import torch

    from core.assemble import build_policy, open_checkpoints
    from core.training.checkpoint import Progress, Snapshot
    from grpoctl.config import read_resolved

    spec = read_resolved(run.spec)
    state = {name: w + (moved if "lora_B" in name else 0.0) for name, w in build_policy(spec).state().items()}
    snapshot = Snapshot(progress=Progress(step=step), weights=state, optimizer={"none": torch.zeros(1)})
    open_checkpoints(spec, run.checkpoints).save(snapshot)


def untrained(home: Home, name: str, *overrides: str, profile: str = "full") -> tuple[RunDir, RunSpec]:
    """A run that has ended and exported what it began with."""
    from core.assemble import build_policy
    from grpoctl.exports.weights import note, whole_folder

    loaded = load(name, profile=profile, overrides=overrides)
    run = prepare(Launch(loaded=loaded), home).run
    with whole_folder(run.adapter) as draft:
        build_policy(loaded.spec).export(draft)
        note(draft, run, 0)
    status.write(run.status, StatusRecord(status=Status.COMPLETED, pid=1, started=1.0, ended=2.0, step=0))
    return run, loaded.spec
