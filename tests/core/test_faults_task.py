"""Faults of a task: a reward that is always the same, and evaluation's problems in training."""

from __future__ import annotations

from core.faults import ConstantReward, EvaluationInTraining
from tests.fakes import PricedTask

TASK = PricedTask(lambda problem, output: problem + int(output), valid=lambda output: output != "3")


def test_a_constant_reward_pays_the_same_and_judges_validity_as_before() -> None:
    examples = TASK.examples("train")[:2]
    outcomes = ConstantReward(TASK).score(examples, ["2", "3"])
    assert [(one.reward, one.expected, one.valid) for one in outcomes] == [(0.5, 0.5, True), (0.5, 0.5, False)]


def test_evaluation_s_problems_come_after_training_s_own() -> None:
    task = EvaluationInTraining(TASK)
    assert task.examples("train") == (*TASK.examples("train"), *TASK.examples("eval"))
    assert list(task.examples("eval")) == TASK.examples("eval")
    assert list(task.examples("test")) == TASK.examples("test")
    assert task.score(task.examples("train")[:1], ["1"]) == TASK.score(TASK.examples("train")[:1], ["1"])
