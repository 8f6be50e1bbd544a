"""Counts of a stage; what a run's budget allows, by hand and against runs."""

from __future__ import annotations

from typing import Any

import pytest

from core.health.before.budget import Bounds, budget, evaluation_error, evaluations_before_the_end, room, steps
from core.health.before.pitfalls import warnings
from core.health.before.report import foresee
from core.health.before.view import StageView, views
from core.training.checkpoint import Progress
from core.training.clock import clock
from core.training.trainer import drive
from tests.core.health.before.conftest import STAGE, run_spec, view
from tests.fakes import LongPolicy, PricedTask, Recorder, trainer_of


def test_a_stage_is_counted() -> None:
    # 4 x 2 = 8 completions; 3 iterations of 2 minibatches of 4; 100 steps of 6 updates; 800 completions of 10 tokens
    found = budget(view(num_iterations=3, minibatches=2, gradient_accumulation_steps=3, lr_clock="updates"))
    assert (found.completions_per_step, found.completions_per_update, found.updates_per_step) == (8, 4, 6)
    assert (found.max_updates, found.max_completions, found.max_tokens) == (600, 800, 8000)
    assert found.micro_batch == 2  # ceil(4 / 3)
    assert found.passes == pytest.approx(200 / 512)
    # Under `updates` too a step is one tick at most: all its updates have one learning rate.
    assert (found.first_tick, found.last_tick) == (0, 99)
    assert budget(view(num_iterations=3)).last_tick == 99
    assert budget(view(dynamic_sampling={"max_attempts": 5})).max_completions_with_refills == 4000


def test_a_supervised_stage_samples_nothing() -> None:
    own = {key: value for key, value in STAGE.items() if key != "num_generations"}
    spec = run_spec(run={"stages": {"warm": {**own, "kind": "sft"}, "grpo": STAGE}})
    warm, grpo = views(spec)
    assert (budget(warm).completions_per_step, budget(warm).max_tokens, budget(warm).max_updates) == (0, 0, 100)
    assert (warm.steps_before, grpo.steps_before) == (0, 100)


@pytest.mark.parametrize(
    ("every", "before", "count"),
    [
        (10, 0, 9),  # 10, 20, ... 90; the one at 100 comes too late to change anything, the start is no stage's
        (101, 0, 0),
        (100, 0, 0),
        (99, 0, 1),
        (40, 50, 2),  # a stage of steps 51 to 150: 80, 120
    ],
)
def test_evaluations_that_a_stage_can_still_use(every: int, before: int, count: int) -> None:
    spec = run_spec(run={"evaluation": {"eval_steps": every}})
    (seen,) = views(spec)
    moved = type(seen)(name=seen.name, stage=seen.stage, spec=spec, steps_before=before)
    assert evaluations_before_the_end(moved) == count
    by_hand = [step for step in range(before + 1, before + 100) if step % every == 0]
    assert count == len(by_hand)


def test_the_error_of_an_evaluation() -> None:
    assert evaluation_error(view()) == pytest.approx((0.5 / 128**0.5, 0.5 / 8))  # 64 prompts x 2


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
