"""The rewards that a stage's task can pay."""

from __future__ import annotations

import pytest

from core.config.task import ArithmeticTaskSpec
from core.health.before.pitfalls import bias_warnings
from core.health.before.view import rewards_of, views
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


class SixSided(ArithmeticTaskSpec):
    """A task that pays 1 to 6."""

    @property
    def reward_range(self) -> tuple[float, float]:
        return 1.0, 6.0


@pytest.mark.parametrize(("positive", "reachable"), [(3.0, True), (6.5, False)])
def test_a_task_may_pay_more_than_1(positive: float, reachable: bool) -> None:
    spec = run_spec(task="arithmetic", positive_reward=positive)
    spec = spec.model_copy(update={"task": SixSided(**spec.task.model_dump())})
    (seen,) = views(spec)
    assert (seen.rewards.low, seen.rewards.high) == (1.0, 6.0)
    assert ("unreachable-reward" in {finding.id for finding in bias_warnings(seen)}) == (not reachable)


def test_the_levels_are_the_tasks() -> None:
    assert rewards_of(view()).levels == tuple(LEVELS)
    assert rewards_of(view()).smallest_gap == pytest.approx(0.2)
    task = ArithmeticTask(ArithmeticTaskSpec(name="arithmetic"))
    example = task.examples("train")[0]
    outputs = ["", "0" if example.facts["answer"] else "1", str(example.facts["answer"])]
    rewards = tuple(outcome.reward for outcome in task.score([example] * 3, outputs))
    (seen,) = views(run_spec(task="arithmetic"))
    assert rewards_of(seen).levels == rewards
    costly = run_spec(run={"task": {"name": "workflow-dsl", "operator_cost": 0.01}})
    assert next(views(costly)).rewards.levels is None
