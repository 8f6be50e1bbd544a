"""A real worker that is killed in the middle of a run: what stands on disk once another has gone on with it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from grpoctl.config import load
from grpoctl.executors.base import Died, Ended, Event, Job, JobDone
from grpoctl.executors.pool import Pool
from grpoctl.executors.slots import cpu_slots
from grpoctl.files import replace_json
from grpoctl.runs.launch import Launch, prepare
from grpoctl.runs.liveness import reconcile_run
from grpoctl.runs.locks import holder
from grpoctl.runs.run_dir import Home, RunDir
from tests.end_to_end.cli import eventually, step_of
from tests.end_to_end.scenarios import attempts

pytestmark = [pytest.mark.process, pytest.mark.slow]

SMALL = ("task.eval_prompts=2", "stages.grpo.max_steps=4", "checkpoints.save_steps=1", "evaluation.eval_steps=2")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    return Home(path=tmp_path / "home")


def waiting_run(home: Home) -> RunDir:
    """A run that waits at each evaluation until its parent has seen it."""
    run = prepare(Launch(loaded=load("p31", profile="tiny", overrides=SMALL)), home).run
    order(run, seen=0)
    return run


def order(run: RunDir, seen: int) -> None:
    replace_json(run.control, {"schema": 1, "wait": True, "seen": seen, "end": None})


def drain(pool: Pool) -> list[Event]:
    """What is told until the job is done."""
    found: list[Event] = []
    while not any(isinstance(event, JobDone) for event in found):
        found += pool.events(5.0)
    return found


def test_a_killed_worker_costs_nothing_but_time(home: Home, tmp_path: Path) -> None:
    killed, undisturbed = waiting_run(home), waiting_run(home)
    pool = Pool(cpu_slots(1), tmp_path / "logs")
    try:
        pool.submit(Job(number=0, runs=(killed.path, undisturbed.path)))
        eventually(lambda: step_of(killed) == 2, "it waits at its evaluation")
        worker = holder(killed.lock)
        assert [worker] == pool.pids()
        os.kill(worker, signal.SIGKILL)
        died, done = [event for event in drain(pool) if isinstance(event, Died | JobDone)]
        assert isinstance(died, Died)
        assert (died.run, done) == (killed.path, JobDone(job=0))
        assert reconcile_run(killed)
        for run in (killed, undisturbed):
            order(run, seen=99)
        pool.submit(Job(number=0, runs=(killed.path, undisturbed.path)))
        assert [event.status for event in drain(pool) if isinstance(event, Ended)] == ["COMPLETED"] * 2
    finally:
        pool.close()
    assert (attempts(killed), attempts(undisturbed)) == (2, 1)
    for name in ("metrics.jsonl", "samples.jsonl", "adapter/adapter_model.safetensors"):
        assert (killed.path / name).read_bytes() == (undisturbed.path / name).read_bytes()
