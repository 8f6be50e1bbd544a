"""A job's list: what is executed, what is told, and what refuses to begin."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpoctl.executors.base import Ended, Event, Job, JobDone, Row, Step
from grpoctl.executors.inline import Hooks
from grpoctl.executors.jobs import Reporting, execute_one, work
from grpoctl.runs.status import Status
from tests.conftest import Recorded


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
