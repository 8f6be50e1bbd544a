"""Schedules and plateaus, and a stage's warm-up."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from core.config import GrpoStage, Schedule
from tests.core.config.valid_run import STAGE, refused


@pytest.mark.parametrize(
    ("warmup", "scheduled", "accepted"),
    [
        (10, None, True),  # the horizon is max_steps = 10
        (11, None, False),
        (11, 12, True),  # the horizon is lr_scheduler_steps
        (9, 8, False),
        (0, 1, True),
    ],
)
def test_warmup_ends_within_the_horizon(warmup: int, scheduled: int | None, accepted: bool) -> None:
    stage = {**STAGE, "warmup_steps": warmup, "lr_scheduler_steps": scheduled}
    if accepted:
        assert GrpoStage.model_validate(stage).lr_horizon == (scheduled or 10)
        return
    error = refused({"stages": {"grpo": stage}})
    assert error["ctx"]["key"] == "warmup_steps"
    assert f"got {warmup}" in error["msg"]


@pytest.mark.parametrize("value", [True, "1", -1.0, float("nan"), float("inf"), 10**400, None, [1], {"start": 1}])
def test_a_schedule_is_a_number_or_complete(value: object) -> None:
    with pytest.raises(ValidationError):
        Schedule.model_validate(value)


def test_a_number_is_a_constant_schedule() -> None:
    assert Schedule.model_validate(1) == Schedule(start=1.0, end=1.0, steps=0)


def test_a_number_with_a_plateau_is_written_out() -> None:
    rule = {"metric": "eval/reward", "patience": 3, "factor": 0.5, "min_delta": 0.0}
    still = {"start": 0.2, "end": 0.2, "steps": 0, "shape": "linear", "warmup": 0}
    plain = Schedule.model_validate({"start": 0.2, "end": 0.2, "plateau": None})
    assert (plain.constant, plain.model_dump()) == (True, 0.2)
    moved = Schedule.model_validate({"start": 0.2, "end": 0.2, "plateau": {"patience": 3}})
    assert (moved.constant, moved.model_dump()) == (False, {**still, "plateau": rule})
    assert Schedule.model_validate(moved.model_dump()) == moved
