"""What a trainer asks for. It never touches a model itself: whoever drives it may batch several trainers' requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from core.policies.base import Policy, Rollout, RowKey, Sampling, Scores, Weights
from core.tasks.base import Example
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

    def run(self) -> Rollout:
        """The rollout."""
        return self.policy.sample(self.prompts, self.k, self.how, self.keys)


@dataclass(frozen=True, kw_only=True, slots=True)
class Score:
    """Score drawn rows without gradients; the answer is Scores."""

    policy: Policy
    rollout: Rollout
    rows: Sequence[int]
    wants: frozenset[str] = frozenset()
    weights: Weights = "current"
    name: str = "score"

    def run(self) -> Scores:
        """The clean scores."""
        with torch.no_grad():
            return self.policy.score(self.rollout, self.rows, wants=self.wants, weights=self.weights)


@dataclass(frozen=True, kw_only=True, slots=True)
class Replay:
    """Given outputs as a rollout; the answer is a Rollout."""

    policy: Policy
    prompts: Sequence[Example]
    outputs: Sequence[str]
    name: str = "replay"

    def run(self) -> Rollout:
        """The rollout, nothing of it drawn."""
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

    def run(self) -> Mapping[str, float]:
        """The metrics of the update."""
        return self.update.apply(self.batches, learning_rate=self.learning_rate, key=self.key, shares=self.shares)


@dataclass(frozen=True, kw_only=True, slots=True)
class StepDone:
    """A step is finished: its row of metrics and its samples, to be recorded before anything else happens."""

    row: Mapping[str, float | None]
    samples: Sequence[Mapping[str, object]]


Request = Sample | Replay | Score | Learn | StepDone
Answer = Rollout | Scores | Mapping[str, float] | None
__all__ = ["Answer", "Learn", "Replay", "Request", "Sample", "Score", "StepDone"]
