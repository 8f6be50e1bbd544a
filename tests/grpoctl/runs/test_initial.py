"""`init_from`: which run a name means, and what of its weights is taken."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import NotFoundError
from core.training.checkpoint import Checkpoints, Progress, Snapshot
from grpoctl.config import load
from grpoctl.files import read_json
from grpoctl.runs.initial import initial_snapshot, source_of
from grpoctl.runs.launch import Launch, prepare
from grpoctl.runs.run_dir import Home, RunDir

WANTED = load("p31", profile="tiny", overrides=["init_from=p31"])


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(path=tmp_path / "home")


def started(home: Home, name: str = "p31", seed: int = 0) -> RunDir:
    return prepare(Launch(loaded=load(name, profile="tiny", seed=seed)), home).run


def checkpoint(run: RunDir, step: int, best: int | None = None) -> None:
    import torch

    progress = Progress(step=step, best_step=best)
    weights = {"w": torch.full((2,), float(step))}
    Checkpoints(run.checkpoints, 2).save(Snapshot(progress=progress, weights=weights, optimizer={}))


def test_of_an_experiment_it_is_the_newest_run_with_a_checkpoint(home: Home) -> None:
    first = started(home)
    checkpoint(first, 3)
    started(home, seed=1)  # newer, and has nothing yet
    checkpoint(started(home, name="p30"), 3)
    assert source_of(WANTED.spec, home) == str(first.path)


def test_a_run_without_a_checkpoint_is_refused_before_anything_is_made(home: Home) -> None:
    started(home)
    with pytest.raises(NotFoundError, match=r"init_from: .* no checkpoint"):
        prepare(Launch(loaded=WANTED), home)
    with pytest.raises(NotFoundError, match="init_from: no run 'nope'"):
        prepare(Launch(loaded=load("p31", profile="tiny", overrides=["init_from=nope"])), home)
    assert len(home.runs()) == 1


def test_the_run_is_fixed_when_it_starts(home: Home) -> None:
    first = started(home)
    checkpoint(first, 3)
    run = prepare(Launch(loaded=WANTED), home).run
    later = started(home, seed=5)
    checkpoint(later, 9)
    assert (read_json(run.provenance) or {})["init_from"] == str(first.path)
    snapshot, whence = initial_snapshot(WANTED.spec, run)
    assert snapshot is not None
    assert snapshot.progress.step == 3
    assert first.id in whence


def test_the_best_checkpoint_is_taken_where_it_is_there(home: Home) -> None:
    first = started(home)
    checkpoint(first, 4, best=4)
    checkpoint(first, 8, best=4)
    snapshot, whence = initial_snapshot(WANTED.spec, prepare(Launch(loaded=WANTED), home).run)
    assert snapshot is not None
    assert snapshot.weights["w"].tolist() == [4.0, 4.0]
    assert "best checkpoint, step 4" in whence


def test_a_run_that_names_none_starts_from_the_model(home: Home) -> None:
    assert initial_snapshot(load("p31", profile="tiny").spec, started(home)) == (None, "")
