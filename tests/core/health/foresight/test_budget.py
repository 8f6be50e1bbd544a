"""Counts of a stage, and the rewards that rules take for granted."""

from __future__ import annotations

import pytest

from core.config.task import ArithmeticTaskSpec
from core.health.foresight.biases import bias_warnings
from core.health.foresight.budget import budget, evaluation_error, evaluations_before_the_end
from core.health.foresight.view import BEST_REWARD, rewards_of, views
from core.tasks.arithmetic import ArithmeticTask
from core.tasks.workflow_dsl.rewards import LEVELS
from tests.core.health.foresight.conftest import STAGE, run_spec, view


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


@pytest.mark.parametrize(("reward", "levels"), [(0.0, (0.0, 1.0)), (0.1, (0.0, 0.1, 1.0)), (1.0, (0.0, 1.0))])
def test_the_levels_of_gsm8k(reward: float, levels: tuple[float, ...]) -> None:
    seen = next(views(run_spec(run={"task": {"name": "gsm8k", "format_reward": reward}})))
    assert (seen.rewards.low, seen.rewards.high, seen.rewards.levels) == (0.0, 1.0, levels)


def test_rewards_of_the_users_own_have_no_bounds() -> None:
    task = {"name": "custom", "data": {"path": "/d.jsonl"}, "prompt": "{q}", "rewards": [{"function": "m:f"}]}
    seen = next(views(run_spec(run={"task": task}, positive_reward=5.0)))
    assert seen.rewards.span is None
    assert "unreachable-reward" not in {finding.id for finding in bias_warnings(seen)}


def test_the_levels_are_the_tasks() -> None:
    assert rewards_of(view()).levels == tuple(LEVELS)
    assert max(LEVELS) == BEST_REWARD
    assert rewards_of(view()).smallest_gap == pytest.approx(0.2)
    task = ArithmeticTask(ArithmeticTaskSpec(name="arithmetic"))
    example = task.examples("train")[0]
    outputs = ["", "0" if example.facts["answer"] else "1", str(example.facts["answer"])]
    rewards = tuple(outcome.reward for outcome in task.score([example] * 3, outputs))
    (seen,) = views(run_spec(task="arithmetic"))
    assert rewards_of(seen).levels == rewards
    costly = run_spec(run={"task": {"name": "workflow-dsl", "operator_cost": 0.01}})
    assert next(views(costly)).rewards.levels is None
