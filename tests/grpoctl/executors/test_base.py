"""Jobs and events as they cross a pipe."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpoctl.executors.base import Died, Ended, Event, Job, JobDone, Row, Step, event_line, event_of, job_line, job_of

RUN = Path("home/runs/p31-ü\n1")
EVENTS: list[Event] = [
    Row(job=1, run=RUN, row={"step": 0, "eval/reward": 0.1 + 0.2, "kl": None}),
    Step(job=1, run=RUN, step=3, completions=48),
    Ended(job=1, run=RUN, status="FAILED", message="a\nb", error="StorageError"),
    Died(job=1, run=RUN, message=""),
    JobDone(job=1),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_an_event_arrives_as_it_was(event: Event) -> None:
    line = event_line(event)
    assert [event_of(part) for part in line.split(b"\n")] == [None, event, None]


def test_a_job_arrives_as_it_was() -> None:
    job = Job(number=7, runs=(RUN, Path("b")))
    assert [job_of(part) for part in job_line(job).split(b"\n")] == [None, job, None]


def test_numbers_that_json_lacks_arrive_as_none() -> None:
    sent = Row(job=0, run=RUN, row={"eval/reward": float("nan"), "kl": float("inf")})
    assert event_of(event_line(sent).strip()) == Row(job=0, run=RUN, row={"eval/reward": None, "kl": None})


def test_a_message_that_was_cut_short_does_not_take_the_next_one_with_it() -> None:
    data = event_line(EVENTS[0])[:30] + event_line(EVENTS[2])
    assert [found for part in data.split(b"\n") if (found := event_of(part))] == [EVENTS[2]]
