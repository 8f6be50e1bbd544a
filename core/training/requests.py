"""What a trainer asks for. It never touches a model or a reward itself: whoever drives it may share out the work.

`run` takes the machine that computes it: on several ranks every one runs the same request and gets the same answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from core.policies.base import Policy, Rollout, Sampling, Scores, Weights
from core.randomness import RowKey
from core.tasks.base import Example, Task
from core.training.groups import Groups, outcomes_of, to_groups
from core.training.machine import Machine
from core.training.shares import Draw, Question, sampled, scored
from core.training.update import Batch, Update


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """Draw k outputs for each prompt; the answer is a Rollout."""

    policy: Policy
    prompts: Sequence[Example]
    k: int
    how: Sampling
    keys: Sequence[RowKey]
    name: str = "sample"

    def run(self, machine: Machine | None = None) -> Rollout:
        """The rollout."""
        draw = Draw(policy=self.policy, prompts=self.prompts, k=self.k, how=self.how, keys=self.keys)
        return sampled(draw, machine or Machine())


@dataclass(frozen=True, kw_only=True, slots=True)
class Reward:
    """Score a rollout by the task; the answer is Groups."""

    task: Task
    rollout: Rollout
    step: int  # how many steps of the run are done
    name: str = "reward"

    def run(self, machine: Machine | None = None) -> Groups:
        """The groups; of several ranks one asks the task, whose rewards may be noisy, slow or somebody's own."""
        world = (machine or Machine()).world
        self.task.begin_step(self.step)
        return to_groups(self.rollout, world.told(lambda: outcomes_of(self.task, self.rollout)))


@dataclass(frozen=True, kw_only=True, slots=True)
class Score:
    """Score drawn rows without gradients, at most `micro_rows` at once; the answer is Scores, on the CPU."""

    policy: Policy
    rollout: Rollout
    rows: Sequence[int]
    wants: frozenset[str] = frozenset()
    weights: Weights = "current"
    micro_rows: int | None = None
    name: str = "score"

    def run(self, machine: Machine | None = None) -> Scores:
        """The clean scores."""
        question = Question(
            policy=self.policy,
            rollout=self.rollout,
            wants=self.wants,
            weights=self.weights,
            micro_rows=self.micro_rows,
        )
        with torch.no_grad():
            return scored(question, self.rows, machine or Machine())


@dataclass(frozen=True, kw_only=True, slots=True)
class Replay:
    """Given outputs as a rollout; the answer is a Rollout."""

    policy: Policy
    prompts: Sequence[Example]
    outputs: Sequence[str]
    name: str = "replay"

    def run(self, machine: Machine | None = None) -> Rollout:
        """The rollout, nothing of it drawn; each rank does it, it is quick."""
        return self.policy.replay(self.prompts, self.outputs)


@dataclass(frozen=True, kw_only=True, slots=True)
class Learn:
    """One optimiser step over all batches; the answer is a mapping of metrics."""

    update: Update
    batches: Sequence[Batch]
    learning_rate: float
    key: RowKey
    shares: bool = False
    name: str = "learn"

    def run(self, machine: Machine | None = None) -> Mapping[str, float]:
        """The metrics of the update."""
        rate, shares = self.learning_rate, self.shares
        return self.update.apply(self.batches, learning_rate=rate, key=self.key, shares=shares, machine=machine)


@dataclass(frozen=True, kw_only=True, slots=True)
class StepDone:
    """A step is finished: its row of metrics and its samples, to be recorded before anything else happens."""

    row: Mapping[str, float | None]
    samples: Sequence[Mapping[str, object]]


Request = Sample | Replay | Reward | Score | Learn | StepDone
Answer = Rollout | Groups | Scores | Mapping[str, float] | None
__all__ = ["Answer", "Learn", "Replay", "Request", "Reward", "Sample", "Score", "StepDone"]
