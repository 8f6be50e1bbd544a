"""Executing what a trainer asks for: answers go back in order, steps go to the observer with their timings."""

from __future__ import annotations

import time
from typing import Any

import pytest

from core.training.outcome import Ending
from core.training.parallel import Machine
from core.training.requests import StepDone
from core.training.trainer import Steps, drive
from tests.fakes import PricedTask, Recorder, TabularPolicy, grpo_stage, trainer_of

TASK = PricedTask(lambda prompt, output: float(output))


def test_timings_are_per_kind_and_together_no_more_than_the_step() -> None:
    trainer = trainer_of(TabularPolicy(), TASK, grpo_stage(max_steps=2, beta=0.1), evaluation={"eval_steps": 2})
    recorder = Recorder()
    drive(trainer.steps(), recorder)
    assert [set(timings) for timings in recorder.timings] == [
        {"evaluate", "calibrate", "probe", "total"},
        {"sample", "reward", "score", "learn", "total"},
        {"sample", "reward", "score", "learn", "evaluate", "total"},
    ]
    for timings in recorder.timings:
        parts = [seconds for name, seconds in timings.items() if name != "total"]
        assert 0 < sum(parts) <= timings["total"]


class Busy:
    """A request that takes this long."""

    def __init__(self, name: str, seconds: float) -> None:
        self.name, self._until = name, seconds

    def run(self, machine: Machine) -> str:
        started = time.perf_counter()
        while time.perf_counter() < started + self._until:
            pass
        return self.name


def test_requests_of_a_kind_add_up_and_every_step_starts_from_nothing() -> None:
    answers: list[Any] = []

    def steps() -> Steps:
        nonlocal answers
        for seconds in (0.01, 0.0):
            for request in (Busy("score", seconds), Busy("sample", 0.0), Busy("score", 0.0)):
                answers += [(yield request)]  # type: ignore[misc]
            answers += [(yield StepDone(row={"step": len(answers)}, samples=[]))]
        return Ending(status="COMPLETED", message="")

    recorder = Recorder()
    drive(steps(), recorder)
    assert answers == ["score", "sample", "score", None] * 2
    first, second = recorder.timings
    assert first["score"] >= 0.01 > second["score"]
    assert first["total"] >= 0.01 > second["total"]


def test_what_the_observer_raises_ends_the_run() -> None:
    trainer = trainer_of(TabularPolicy(), TASK, grpo_stage())
    recorder = Recorder(stop_at=4)
    with pytest.raises(KeyboardInterrupt):
        drive(trainer.steps(), recorder)
    assert [row["step"] for row in recorder.rows] == [0, 1, 2, 3, 4]
    assert trainer.progress.step == 4
