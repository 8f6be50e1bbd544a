"""Sampled outputs and a task -> scored groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from core.errors import TaskError
from core.policies.base import Rollout
from core.tasks.base import Outcome, Task


@dataclass(frozen=True, kw_only=True, slots=True)
class Groups:
    """A rollout with the outcome of each of its N = P*K rows; rewards in float64, NaN where missing."""

    rollout: Rollout
    outcomes: Sequence[Outcome]
    rewards_PK: Tensor


def completion_ids(rollout: Rollout) -> list[list[int]]:
    """The drawn tokens of each row, the end token included; [] where outputs are no tokens."""
    ids = rollout.actions.get("ids")
    if ids is None or ids.dim() != 2:
        return []
    lengths = rollout.mask_NT.sum(-1).tolist()
    return [row[:length] for row, length in zip(ids.tolist(), lengths, strict=True)]


def collect(task: Task, rollout: Rollout) -> Groups:
    """The rollout scored by the task. Raises TaskError where the task returns the wrong number of outcomes."""
    return grouped(rollout, outcomes_of(task, rollout))


def outcomes_of(task: Task, rollout: Rollout) -> list[Outcome]:
    """The task's outcome of each row. Raises TaskError where it returns the wrong number of them."""
    examples = [rollout.prompts[index] for index in rollout.prompt_N.tolist()]
    outcomes = task.score(examples, rollout.outputs, completion_ids(rollout))
    if len(outcomes) != len(examples):
        raise TaskError(f"got {len(outcomes)} outcomes for {len(examples)} completions: a task returns one for each")
    return outcomes


def grouped(rollout: Rollout, outcomes: Sequence[Outcome]) -> Groups:
    """The rollout with its outcomes, one a row."""
    rewards_N = torch.tensor([outcome.reward for outcome in outcomes], dtype=torch.float64)
    return Groups(rollout=rollout, outcomes=outcomes, rewards_PK=rewards_N.view(len(rollout.prompts), -1))
