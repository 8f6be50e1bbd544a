"""Executing what a trainer asks for: answers go back in order, steps go to the observer with their timings."""

from __future__ import annotations

import pytest

from core.training.drive import drive
from tests.fakes import PricedTask, Recorder, TabularPolicy, grpo_stage, trainer_of

TASK = PricedTask(lambda prompt, output: float(output))


def test_timings_are_per_kind_and_together_no_more_than_the_step() -> None:
    trainer = trainer_of(TabularPolicy(), TASK, grpo_stage(max_steps=2, beta=0.1), evaluation={"eval_steps": 2})
    recorder = Recorder()
    drive(trainer.steps(), recorder)
    assert [set(timings) for timings in recorder.timings] == [
        {"evaluate", "total"},
        {"sample", "score", "learn", "total"},
        {"sample", "score", "learn", "evaluate", "total"},
    ]
    for timings in recorder.timings:
        parts = [seconds for name, seconds in timings.items() if name != "total"]
        assert 0 < sum(parts) <= timings["total"]


def test_what_the_observer_raises_ends_the_run() -> None:
    trainer = trainer_of(TabularPolicy(), TASK, grpo_stage())
    recorder = Recorder(stop_at=4)
    with pytest.raises(KeyboardInterrupt):
        drive(trainer.steps(), recorder)
    assert [row["step"] for row in recorder.rows] == [0, 1, 2, 3, 4]
    assert trainer.progress.step == 4
