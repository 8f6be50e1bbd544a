"""What a trainer asks for. It never touches a model itself: whoever drives it may batch several trainers' requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from core.policies.base import Policy, Rollout, RowKey, Sampling, Scores, Weights
from core.tasks.base import Example
from core.training.update import LossParts, Update


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
class Learn:
    """One optimiser step over the rollout's rows; the answer is a mapping of metrics."""

    update: Update
    rollout: Rollout
    loss: Callable[[Scores, Sequence[int]], LossParts]
    learning_rate: float
    micro_rows: int
    key: RowKey
    name: str = "learn"

    def run(self) -> Mapping[str, float]:
        """The metrics of the update."""
        return self.update.apply(
            self.rollout, self.loss, learning_rate=self.learning_rate, micro_rows=self.micro_rows, key=self.key
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class StepDone:
    """A step is finished: its row of metrics and its samples, to be recorded before anything else happens."""

    row: Mapping[str, float | None]
    samples: Sequence[Mapping[str, object]]


Request = Sample | Score | Learn | StepDone
Answer = Rollout | Scores | Mapping[str, float] | None
__all__ = ["Answer", "Learn", "Request", "Sample", "Score", "StepDone"]
