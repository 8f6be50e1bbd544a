"""Sampled outputs and a task give scored groups, in batches too; and which step a reward function is told."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from math import nan
from pathlib import Path

import pytest
import torch

from core.config.task import CustomTaskSpec, DataSpec, RewardSpec
from core.errors import TaskError
from core.policies.base import Rollout, Sampling
from core.randomness import EVALUATE, RowKey
from core.tasks.base import Example, Outcome
from core.tasks.custom.task import CustomTask
from core.training.requests import ROWS, GroupSampling, Reward, collect, sample_groups
from tests.fakes import PricedTask, TabularPolicy, asked, grpo_stage, trainer_of


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


SOURCE = "def f(completions, trainer_state): return [trainer_state.global_step] * len(completions)"


@pytest.mark.process
def test_a_function_is_told_how_many_steps_are_done(tmp_path: Path) -> None:
    """TRL's global_step: 0 before the first update. Evaluated before step 1 and after step 2."""
    (tmp_path / "data.csv").write_text("q\n" + "\n".join(f"question {row}" for row in range(8)) + "\n")
    (tmp_path / "mine.py").write_text(SOURCE)
    spec = CustomTaskSpec(
        name="custom",
        data=DataSpec(path=str(tmp_path / "data.csv")),
        prompt="{q}",
        rewards=(RewardSpec(function=f"{tmp_path}/mine.py:f"),),
        train_prompts=4,
        eval_prompts=2,
    )
    task = CustomTask(spec)
    stage = grpo_stage(max_steps=2)
    with closing(task):
        trainer = trainer_of(TabularPolicy(), task, stage, evaluation={"eval_steps": 2})
        told = [
            (request.name, {outcome.reward for outcome in groups.outcomes})
            for request, groups in asked(trainer)
            if isinstance(request, Reward)
        ]
    assert told == [("evaluate", {0.0}), ("reward", {0.0}), ("reward", {1.0}), ("evaluate", {2.0})]
