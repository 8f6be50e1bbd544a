"""A policy measured on a task in batches: every problem once, in order, drawn as a run's own evaluation draws."""

from __future__ import annotations

import pytest

from core.policies.base import Sampling
from core.randomness import EVALUATE, RowKey
from core.training.requests import ROWS, GroupSampling, sample_groups
from tests.fakes import PricedTask, TabularPolicy

HOW = Sampling(temperature=1.0, max_completion_length=1)


@pytest.mark.parametrize(
    ("prompts", "k", "batches"),
    [
        (1, 1, [1]),
        (130, 1, [128, 2]),
        (65, 2, [64, 1]),
        (3, ROWS + 1, [1, 1, 1]),  # a group is never split
    ],
)
def test_every_problem_is_measured_once_in_bounded_batches(prompts: int, k: int, batches: list[int]) -> None:
    task = PricedTask(lambda n, output: float(output), prompts=prompts)
    examples, policy = task.examples("eval"), TabularPolicy()
    found = list(sample_groups(policy, task, examples, GroupSampling(k=k, how=HOW, seed=4)))
    assert [len(groups.rollout.prompts) for groups in found] == batches
    assert [one.id for groups in found for one in groups.rollout.prompts] == [one.id for one in examples]
    # The very rows that the trainer's evaluation, which draws all of them at once, would have drawn.
    keys = [RowKey(4, EVALUATE, 0, 0, row) for row in range(prompts * k)]
    whole = policy.sample(examples, k, HOW, keys)
    assert [output for groups in found for output in groups.rollout.outputs] == list(whole.outputs)
    assert [o.reward for groups in found for o in groups.outcomes] == [float(output) for output in whole.outputs]
