"""A job's list: what is executed, what is told, and what refuses to begin."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from grpoctl.config import load
from grpoctl.executors.base import Died, Ended, Event, Executor, Job, JobDone, Row, Step
from grpoctl.executors.hooks import Hooks
from grpoctl.executors.jobs import Inline, Reporting, execute_one, work
from grpoctl.files import read_rows, replace_json
from grpoctl.runs.launch import Launch, prepare
from grpoctl.runs.run_dir import Home, RunDir
from grpoctl.runs.status import Status
from tests.conftest import Recorded
from tests.grpoctl.executors.conftest import told


@pytest.mark.parametrize(
    ("endings", "executed"),
    [
        ("COMPLETED STOPPED_EARLY", 2),
        ("COLLAPSED COMPLETED", 2),  # a bad seed is a result: the others are run too
        ("INVALID_ROLLOUT COMPLETED", 2),
        ("PRUNED COMPLETED", 1),
        ("FAILED COMPLETED", 1),
        ("COMPLETED INTERRUPTED COMPLETED", 2),
    ],
)
def test_which_endings_leave_the_list(endings: str, executed: int) -> None:
    job = Job(number=3, runs=tuple(Path(str(index)) for index, _ in enumerate(endings.split())))
    told: list[Event] = []
    ends = [Ended(job=3, run=run, status=one) for run, one in zip(job.runs, endings.split(), strict=True)]
    work(job, told.append, lambda job, path: ends[int(path.name)])
    assert told == [*ends[:executed], JobDone(job=3)]


def test_evaluations_are_told_each_and_steps_now_and_then() -> None:
    told: list[Event] = []
    checked: list[int] = []
    job, run = Job(number=1, runs=(Path("a"),)), Path("a")
    hooks = Reporting(job, run, told.append, lambda: checked.append(1))
    rows = [
        {"step": 0.0, "eval/reward": 0.5},
        {"step": 1.0, "completions": 8.0, "kl": 0.1},
        {"step": 2.0, "eval/x": None},
    ]
    for row in rows:
        hooks.row(row)
    first = Step(job=1, run=run, step=0, completions=0)
    assert told == [Row(job=1, run=run, row=rows[0]), first, Row(job=1, run=run, row=rows[2])]
    assert len(checked) == 3


def test_a_run_that_had_come_to_its_end_is_not_executed_again(recorded: Recorded) -> None:
    run = recorded(ended="COLLAPSED")
    before = run.status.read_bytes(), run.provenance.read_bytes()
    ended = execute_one(Job(number=0, runs=(run.path,)), run.path, Hooks(), ())
    assert (ended.status, ended.error) == (Status.COLLAPSED, None)
    assert (run.status.read_bytes(), run.provenance.read_bytes()) == before


def test_a_run_that_cannot_begin_has_failed_and_says_of_what(recorded: Recorded) -> None:
    run = recorded(ended="INTERRUPTED")
    job = Job(number=0, runs=(run.path,))
    with run.hold():
        busy = execute_one(job, run.path, Hooks(), ())
    assert (busy.status, busy.error) == ("FAILED", "BusyError")
    assert "in use by process" in busy.message
    run.spec.write_text(run.spec.read_text().replace("beta: 0.005", "beta: 0.5"))
    assert execute_one(job, run.path, Hooks(), ()).error == "SpecError"


SMALL = ("stages.grpo.max_steps=3", "task.eval_prompts=2", "evaluation.eval_steps=1", "checkpoints.save_steps=1")


def prepared(home: Home, seed: int = 0) -> RunDir:
    loaded = load("p31", profile="tiny", seed=seed, overrides=SMALL)
    return prepare(Launch(loaded=loaded), home).run


def order(run: RunDir, seen: int, end: object = None) -> None:
    replace_json(run.control, {"schema": 1, "wait": True, "seen": seen, "end": end})


def events_until(executor: Executor, step: int) -> list[object]:
    found: list[object] = []
    deadline = time.monotonic() + 60
    while not any(isinstance(event, Row) and event.row["step"] == step for event in found):
        assert time.monotonic() < deadline, found
        found += executor.events(0.5)
    return found


def test_the_parent_ends_a_run_at_the_very_step_it_decided_on(home: Home) -> None:
    executor, runs = Inline(argv=("grpoctl", "sweep")), [prepared(home), prepared(home, seed=1)]
    order(runs[0], 0)
    executor.submit(Job(number=5, runs=tuple(run.path for run in runs)))
    assert executor.free() == 0
    with pytest.raises(ValueError, match="0 slots are free"):
        executor.submit(Job(number=6, runs=(runs[1].path,)))
    events_until(executor, 1)
    assert executor.events(0.1) == []  # it waits
    order(runs[0], 1, {"status": "PRUNED", "message": "not worth it"})
    (ended, done) = [event for event in told(executor, 1) if isinstance(event, Ended | JobDone)]
    assert ended == Ended(job=5, run=runs[0].path, status="PRUNED", message="not worth it")
    assert (done, executor.free()) == (JobDone(job=5), 1)
    assert [row["step"] for row in read_rows(runs[0].metrics)] == [0, 1]
    assert not runs[0].mirror_log.exists()  # a sweep has a mirror of its own
    assert not runs[1].status.exists()  # the list was left
    assert '"sweep"' in runs[0].provenance.read_text()


def test_closing_interrupts_a_run_that_waits_and_it_goes_on_later(home: Home) -> None:
    run, twin = prepared(home), prepared(home)
    order(run, 1)
    executor = Inline()
    executor.submit(Job(number=0, runs=(run.path,)))
    events_until(executor, 2)
    executor.close()
    assert [event.status for event in executor.events(0) if isinstance(event, Ended)] == ["INTERRUPTED"]
    assert executor.free() == 0
    order(run, 99)
    again = Inline()
    again.submit(Job(number=0, runs=(run.path, twin.path)))
    assert [event.status for event in told(again, 1) if isinstance(event, Ended)] == ["COMPLETED"] * 2
    assert run.metrics.read_bytes() == twin.metrics.read_bytes()
    assert run.samples.read_bytes() == twin.samples.read_bytes()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_what_nobody_foresaw_is_told_as_a_death(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("grpoctl.executors.jobs.execute_one", broken)
    executor = Inline()
    executor.submit(Job(number=2, runs=(Path("a"), Path("b"))))
    died, done = told(executor, 1)
    assert died == Died(job=2, run=Path("a"), message="the thread of the run died")
    assert (done, executor.free()) == (JobDone(job=2), 1)
    assert threading.active_count() >= 1
