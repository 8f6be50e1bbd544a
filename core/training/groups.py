"""Scored groups: sampled outputs and what a task says of each, in training and where a policy is only measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from core.errors import TaskError
from core.policies.base import Policy, Rollout, Sampling
from core.randomness import EVALUATE, RowKey
from core.tasks.base import Example, Outcome, Task

ROWS = 128  # of a batch, whole groups: what is kept of it is small, and progress is seen


@dataclass(frozen=True, kw_only=True, slots=True)
class Groups:
    """A rollout with the outcome of each of its N = P*K rows; rewards in float64, NaN where missing."""

    rollout: Rollout
    outcomes: Sequence[Outcome]
    rewards_PK: Tensor


def collect(task: Task, rollout: Rollout) -> Groups:
    """The rollout scored by the task. Raises TaskError where the task returns the wrong number of outcomes."""
    return to_groups(rollout, outcomes_of(task, rollout))


def outcomes_of(task: Task, rollout: Rollout) -> list[Outcome]:
    """The task's outcome of each row. Raises TaskError where it returns the wrong number of them."""
    examples = [rollout.prompts[index] for index in rollout.prompt_N.tolist()]
    outcomes = task.score(examples, rollout.outputs, rollout.tokens)
    if len(outcomes) != len(examples):
        raise TaskError(f"got {len(outcomes)} outcomes for {len(examples)} completions: a task returns one for each")
    return outcomes


def to_groups(rollout: Rollout, outcomes: Sequence[Outcome]) -> Groups:
    """The rollout with its outcomes, one a row."""
    rewards_N = torch.tensor([outcome.reward for outcome in outcomes], dtype=torch.float64)
    return Groups(rollout=rollout, outcomes=outcomes, rewards_PK=rewards_N.view(len(rollout.prompts), -1))


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupSampling:
    """How groups are drawn without training: K completions of each prompt, how, and from which seed."""

    k: int
    how: Sampling
    seed: int


def sample_groups(policy: Policy, task: Task, examples: Sequence[Example], draws: GroupSampling) -> Iterator[Groups]:
    """The examples' scored groups in order, a bounded batch of them at a time: what `grpoctl eval` measures.

    Row n of all draws by its own key, so neither batches nor the number of examples change what is drawn.
    """
    size = max(1, ROWS // draws.k)
    for first in range(0, len(examples), size):
        part = examples[first : first + size]
        rows = range(first * draws.k, (first + len(part)) * draws.k)
        keys = [RowKey(draws.seed, EVALUATE, 0, 0, row) for row in rows]
        yield collect(task, policy.sample(part, draws.k, draws.how, keys))
