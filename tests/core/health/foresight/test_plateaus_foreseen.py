"""A plateau that cannot come before its stage is over changes nothing; one that can may make another knob act."""

from __future__ import annotations

from typing import Any

import pytest

from core.config import GrpoStage, RceStage, RunSpec, Schedule
from core.health.foresight.budget import least_value
from core.health.foresight.inert import inert, inert_axis
from core.health.foresight.other_knobs import SCHEDULES
from core.health.foresight.pitfalls import warnings
from core.health.foresight.view import views
from core.training.outcome import Ending
from core.training.trainer import drive
from tests.core.health.foresight.conftest import STAGE, run_spec, view
from tests.fakes import PricedTask, Recorder, TabularPolicy, trainer_of

OFF_POLICY = {"num_iterations": 2}  # so that epsilon acts


def with_plateau(name: str, patience: int, every: int = 40, **run: Any) -> RunSpec:
    """100 steps, evaluated every 40: at 40 and 80 before the end."""
    number = {"start": 0.5, "end": 0.5, "plateau": {"patience": patience}}
    stage = {**STAGE, name: number, **({"kind": "rce"} if name == "tau" else OFF_POLICY)}
    return run_spec(run={"stages": {"one": stage}, "evaluation": {"eval_steps": every}, **run})


def listed(spec: RunSpec) -> set[str]:
    return {knob.key for knob in inert(spec)}


def test_every_schedule_of_every_stage_is_known() -> None:
    found = {
        name
        for kind in (GrpoStage, RceStage)
        for name, info in kind.model_fields.items()
        if "Schedule" in str(info.annotation)
    }
    assert found == set(SCHEDULES)


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_plateau_needs_one_evaluation_more_than_its_patience(name: str) -> None:
    key = f"stages.one.{name}.plateau"
    assert key not in listed(with_plateau(name, 1))
    assert key in listed(with_plateau(name, 2))
    assert inert_axis(with_plateau(name, 2), f"{key}.factor") is None  # at a patience of 1 it would act
    assert inert_axis(with_plateau(name, 1, every=60), f"{key}.factor") is not None  # one evaluation: at none


def test_a_budget_has_its_own_number_of_evaluations() -> None:
    # 24 completions are 3 steps of 8: at most two evaluations before the end, whatever max_steps says.
    key = "stages.one.temperature.plateau"
    assert key not in listed(with_plateau("temperature", 2, every=10))
    assert key in listed(with_plateau("temperature", 2, every=10, budget={"completions": 24}))
    assert key not in listed(with_plateau("temperature", 1, every=10, budget={"completions": 24}))


@pytest.mark.parametrize(("patience", "cuts"), [(1, 3), (2, 1), (3, 1), (4, 0)])
def test_the_least_value_is_that_of_a_run_that_never_gets_better(patience: int, cuts: int) -> None:
    """10 steps evaluated every 2: at 2, 4, 6 and 8 before the end; the first is what the others are held against."""
    temperature = {"start": 1.0, "end": 1.0, "plateau": {"patience": patience, "factor": 0.5}}
    stage = {**STAGE, "max_steps": 10, "temperature": temperature}
    spec = run_spec(run={"stages": {"grpo": stage}, "evaluation": {"eval_steps": 2}})
    found = least_value(next(views(spec)), Schedule.model_validate(temperature))
    assert found == 0.5**cuts
    flat = PricedTask(lambda prompt, output: 0.5)
    trainer = trainer_of(TabularPolicy(), flat, stages={"grpo": stage}, evaluation={"eval_steps": 2})
    recorder = Recorder()
    assert drive(trainer.steps(), recorder) == Ending(status="COMPLETED", message="all 10 steps done")
    assert min(value or 0.0 for value in recorder.column("temperature")) == found


def test_candidates_that_a_plateau_may_take_are_not_all_kept() -> None:
    kept = {"start": 4, "end": 4, "plateau": {"patience": 1, "factor": 0.5}}
    for keep, some in ((4, False), (kept, True), ({**kept, "plateau": {"patience": 20}}, False), ({**kept, "warmup": 9,
                       "plateau": None}, True)):  # fmt: skip
        spec = run_spec(keep_candidates=keep)
        assert ("stages.grpo.keep_candidates" not in listed(spec)) == some
        assert ("kept-candidates" in {found.id for found in warnings(spec)}) == some
    assert least_value(view(), Schedule.model_validate({"start": 4, "end": 4, "warmup": 1})) == 4
