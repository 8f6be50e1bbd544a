"""What a run's budget allows, by hand and against runs."""

from __future__ import annotations

from typing import Any

import pytest

from core.health.foresight.budget import budget, evaluations_before_the_end
from core.health.foresight.pitfalls import warnings
from core.health.foresight.report import foresee
from core.health.foresight.run_budget import Bounds, room, steps
from core.health.foresight.view import StageView, views
from core.training.checkpoint import Progress
from core.training.clock import clock
from core.training.trainer import drive
from tests.core.health.foresight.conftest import STAGE, run_spec, view
from tests.fakes import LongPolicy, PricedTask, Recorder, trainer_of

RCE = {**STAGE, "kind": "rce", "max_steps": 5}  # 8 completions of up to 10 tokens a step, as the stage `grpo`


def budgeted(amount: int, unit: str = "completions", **stage: Any) -> StageView:
    return view(run={"budget": {unit: amount}}, **stage)


def second(amount: int, unit: str = "completions", **first: Any) -> StageView:
    """The stage after one of 5 steps of 8 completions."""
    spec = run_spec(run={"budget": {unit: amount}, "stages": {"first": {**RCE, **first}, "grpo": STAGE}})
    return list(views(spec))[1]


@pytest.mark.parametrize(
    ("found", "left", "taken"),
    [
        (budgeted(80), Bounds(least=80, most=80), Bounds(least=10, most=10)),
        (budgeted(81), Bounds(least=81, most=81), Bounds(least=11, most=11)),
        (budgeted(80, dynamic_sampling={"max_attempts": 4}), Bounds(least=80, most=80), Bounds(least=3, most=10)),
        (budgeted(800, "tokens"), Bounds(least=800, most=800), Bounds(least=10, most=100)),
        # The first takes 40 completions, or one step of 8 at least where it may stop early; up to 400 tokens.
        (second(120), Bounds(least=80, most=80), Bounds(least=10, most=10)),
        (
            second(120, early_stopping={"patience": 1}), Bounds(least=80, most=112), Bounds(least=10, most=14),
        ),
        (second(1000, "tokens"), Bounds(least=600, most=960), Bounds(least=8, most=120)),
        (second(40), Bounds(least=0, most=0), Bounds(least=0, most=0)),
    ],
)  # fmt: skip
def test_what_is_left_and_the_steps_it_makes(found: StageView, left: Bounds, taken: Bounds) -> None:
    assert (room(found), steps(found)) == (left, taken)


def test_a_stage_before_the_last_one_takes_its_own_steps_at_most() -> None:
    spec = run_spec(run={"budget": {"completions": 20}, "stages": {"first": RCE, "grpo": STAGE}})
    assert steps(next(views(spec))) == Bounds(least=3, most=3)
    roomy = spec.model_copy(update={"budget": None})
    assert [steps(one) for one in views(roomy)] == [Bounds(least=5, most=5), Bounds(least=100, most=100)]


def test_the_counts_of_a_stage_follow_from_the_budget() -> None:
    # 84 completions are 11 steps of 8, 100 ticks: the last begins at 80 of 84.
    found = budget(budgeted(84, num_iterations=3))
    assert (found.min_steps, found.max_steps, found.max_updates, found.max_completions) == (11, 11, 33, 88)
    assert found.max_tokens == 880
    assert found.last_tick == pytest.approx(100 * 80 / 84)
    # With refills the last step begins at 83 at most and takes up to 40.
    refilled = budget(budgeted(84, dynamic_sampling={"max_attempts": 5}))
    assert (refilled.min_steps, refilled.max_steps, refilled.max_completions_with_refills) == (3, 11, 123)
    # Of 84 tokens: up to 11 steps of single tokens, and a last step of 80 tokens from 83.
    tokens = budget(budgeted(84, "tokens"))
    assert (tokens.min_steps, tokens.max_steps, tokens.max_tokens) == (2, 11, 163)


def named(seen: StageView) -> dict[str, Any]:
    found = [one for one in warnings(seen.spec) if "budget" in one.id]
    return {one.id: (one.severity, one.summary) for one in found}


def test_what_is_said_of_a_budget() -> None:
    assert named(view()) == {}
    severity, text = named(budgeted(84))["budget-is-the-clock"]
    assert severity == "info"
    assert "(11 steps)" in text
    assert "100 ticks of 0.84 completions" in text
    assert "(2 to 11 steps)" in named(budgeted(84, "tokens"))["budget-is-the-clock"][1]
    assert named(budgeted(8)).keys() == {"budget-is-the-clock", "budget-of-one-step"}
    assert named(second(40))["stage-without-budget"][0] == "error"
    assert named(second(400, "tokens"))["stage-without-budget"][0] == "warning"
    assert "stage-without-budget" not in named(second(41))
    (last,) = foresee(second(41).spec).stages[1:]
    assert (last.budget.max_steps, last.budget.max_completions) == (1, 8)


def test_few_steps_are_few_evaluations() -> None:
    # 100 ticks, an evaluation every 10: 9 before the end, but 3 steps have 2 at most.
    assert evaluations_before_the_end(budgeted(800)) == 9
    assert evaluations_before_the_end(budgeted(24)) == 2


TASK = PricedTask(lambda prompt, output: float(output) if prompt in (1, 2) else 0.5, prompts=5)


@pytest.mark.parametrize("unit", ["completions", "tokens"])
@pytest.mark.parametrize("amount", [9, 50, 200, 777])
@pytest.mark.parametrize("dynamic", [None, {"max_attempts": 3}])
def test_runs_keep_within_the_bounds(unit: str, amount: int, dynamic: Any) -> None:
    stages = {"rce": {**RCE, "max_steps": 2}, "grpo": {**STAGE, "max_steps": 9, "dynamic_sampling": dynamic}}
    trainer = trainer_of(LongPolicy(), TASK, stages=stages, budget={unit: amount}, evaluation={"eval_steps": 2})
    recorder = Recorder()
    drive(trainer.steps(), recorder)
    for index, seen in enumerate(views(trainer.spec)):
        rows = [row for row in recorder.rows if row.get("stage") == index]
        first = recorder.rows[int(rows[0]["step"] or 0) - 1] if rows else recorder.rows[-1]
        found, last = budget(seen), rows[-1] if rows else first
        assert found.min_steps <= len(rows) <= found.max_steps
        assert (last["completions"] or 0) - (first["completions"] or 0) <= found.max_completions_with_refills
        if dynamic is None:
            assert (last["tokens"] or 0) - (first["tokens"] or 0) <= found.max_tokens
        assert sum("eval/reward" in row for row in rows[:-1]) <= evaluations_before_the_end(seen)
        if rows:
            step = len(rows) - 1
            before = Progress(step=int(last["step"] or 0) - 1, stage=index, stage_step=step, stage_updates=step)
            ticks = clock(trainer.spec, before, recorder.rows[: before.step + 1]).index
            assert ticks <= found.last_tick < seen.stage.max_steps
