"""Sampled outputs and a task -> scored groups."""

from __future__ import annotations

from collections.abc import Sequence
from math import nan

import pytest
import torch

from core.errors import TaskError
from core.policies.base import Rollout, Sampling
from core.randomness import RowKey
from core.tasks.base import Example, Outcome
from core.training.requests import collect
from tests.fakes import PricedTask, TabularPolicy


class Forgetful(PricedTask):
    """Scores all but the last."""

    def score(
        self, examples: Sequence[Example], outputs: Sequence[str], ids: Sequence[Sequence[int]] = ()
    ) -> list[Outcome]:
        return super().score(examples, outputs)[:-1]


def rollout_of(task: PricedTask, k: int) -> Rollout:
    prompts = task.examples("train")
    keys = [RowKey(0, 0, 0, 0, row) for row in range(len(prompts) * k)]
    return TabularPolicy().sample(prompts, k, Sampling(temperature=1.0, max_completion_length=1), keys)


def test_rows_of_a_group_are_scored_on_their_own_prompt() -> None:
    # What a row earns is ten times its prompt's number plus its arm: prompt and output both have to be its own.
    task = PricedTask(lambda prompt, output: 10.0 * prompt + int(output), prompts=3)
    rollout = rollout_of(task, 4)
    groups = collect(task, rollout)
    arms = [int(output) for output in rollout.outputs]
    assert len(set(arms)) > 1
    expected = [[10.0 * p + arms[4 * p + k] for k in range(4)] for p in range(3)]
    assert groups.rewards_PK.tolist() == expected
    assert groups.rewards_PK.dtype is torch.float64
    assert [outcome.reward for outcome in groups.outcomes] == [reward for group in expected for reward in group]


def test_a_missing_reward_stays_missing() -> None:
    task = PricedTask(lambda prompt, output: nan if prompt else 1.0, prompts=2)
    assert collect(task, rollout_of(task, 2)).rewards_PK.isnan().tolist() == [[False, False], [True, True]]


def test_a_task_that_forgets_a_completion_is_refused() -> None:
    task = Forgetful(lambda prompt, output: 0.0)
    with pytest.raises(TaskError, match="7 outcomes for 8 completions"):
        collect(task, rollout_of(task, 2))
