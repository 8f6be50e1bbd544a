"""The rewards that a stage's task can pay."""

from __future__ import annotations

import pytest

from core.config.task import ArithmeticTaskSpec
from core.health.before.pitfalls import bias_warnings
from core.health.before.view import BEST_REWARD, rewards_of, views
from core.tasks.arithmetic import ArithmeticTask
from core.tasks.workflow_dsl.rewards import LEVELS
from tests.core.health.before.conftest import run_spec, view


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
