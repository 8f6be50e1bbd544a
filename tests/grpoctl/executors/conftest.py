"""Pools of acting workers, and the directories that tell these what to play."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from grpoctl.executors.base import Event, Executor, Job, JobDone
from grpoctl.executors.pool import Pool
from grpoctl.executors.slots import Slot, cpu_slots

ACTING = (sys.executable, "-P", str(Path(__file__).with_name("acting_worker.py")))
NewPool = Callable[..., Pool]
Plays = Callable[..., Job]


@pytest.fixture
def plays(tmp_path: Path) -> Plays:
    """Makes a job whose runs do this, one after another."""

    def make(number: int, *does: str) -> Job:
        folders = [tmp_path / f"job{number}-{index}" for index, _ in enumerate(does)]
        for folder, what in zip(folders, does, strict=True):
            folder.mkdir(exist_ok=True)
            (folder / "pid").unlink(missing_ok=True)
            (folder / "does").write_text(what)
        return Job(number=number, runs=tuple(folders))

    return make


@pytest.fixture
def new_pool(tmp_path: Path) -> Iterator[NewPool]:
    """Makes a pool of acting workers, which is closed at the end of the test."""
    pools: list[Pool] = []

    def make(slots: tuple[Slot, ...] | int = 1, **words: object) -> Pool:
        chosen = cpu_slots(slots) if isinstance(slots, int) else slots
        pools.append(Pool(chosen, tmp_path / "logs", **{"command": ACTING, "patience": 0.3, **words}))  # type: ignore[arg-type]
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()


def told(executor: Executor, jobs: int, seconds: float = 60.0) -> list[Event]:
    """All events until so many jobs are done."""
    found: list[Event] = []
    deadline = time.monotonic() + seconds
    while sum(isinstance(event, JobDone) for event in found) < jobs:
        assert time.monotonic() < deadline, found
        found += executor.events(1.0)
    return found
