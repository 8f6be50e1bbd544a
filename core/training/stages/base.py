"""What a step of any stage is given, what it hands back, and the requests all kinds of stage make."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from core.config import RunSpec, Schedule, StageBase
from core.health.finding import Row
from core.policies.base import Policy, Rollout, Sampling, Weights
from core.policies.savings import Savings
from core.randomness import DROPOUT, ORDER, TRAIN, RowKey, permutation
from core.tasks.base import Example, Task
from core.training.callbacks.base import Ending
from core.training.checkpoint import Progress
from core.training.clock import Clock, Spent
from core.training.requests import Learn, Replay, Request, Sample, Score
from core.training.scheduled import at, stage_learning_rate
from core.training.update import Batch, Update

NOTHING: frozenset[str] = frozenset()
SUPERVISED = 1  # attempt number under ORDER: supervised examples have an order of their own


@dataclass(frozen=True, kw_only=True, slots=True)
class Done:
    """What a step comes to. `prompts` were drawn for it; `carried` is handed to the stage's next step."""

    row: Mapping[str, float]
    samples: Sequence[Mapping[str, object]] = ()
    spent: Spent = field(default_factory=Spent)
    prompts: int = 0
    carried: Mapping[str, float] = field(default_factory=dict)
    ending: Ending | None = None


StepRun = Generator[Request, Any, Done]


@dataclass(frozen=True, kw_only=True, slots=True)
class Here:
    """Where a step stands. `look` asks the run's guards about a row before anything is learned from it."""

    spec: RunSpec
    stage: Any  # the stage's spec; each kind of step knows its own
    policy: Policy
    task: Task
    update: Update
    progress: Progress
    table: Sequence[Row]  # the stage's rows so far
    look: Callable[[Row], Ending | None]
    clock: Clock  # as it stands before the step
    savings: Savings = field(default_factory=Savings)
    held_out: frozenset[str] = frozenset()  # the evaluation's problems, by core.tasks.base.names_of

    @property
    def step(self) -> int:
        """The run's step, from 1."""
        return self.progress.step + 1

    def now(self, schedule: Schedule) -> float:
        """A schedule's value on this step."""
        return at(schedule, self.clock.position, self.table)

    def prompts(self, start: int, count: int) -> list[Example]:
        """Training prompts `start` to `start + count` in an order that is shuffled anew each epoch."""
        return self._ordered(self.task.examples("train"), start, count, attempt=0)

    def sample(self, prompts: Sequence[Example], k: int, how: Sampling, attempt: int = 0) -> Sample:
        """The request for k completions of each prompt."""
        keys = [RowKey(self.spec.seed, TRAIN, self.step, attempt, row) for row in range(len(prompts) * k)]
        return Sample(policy=self.policy, prompts=prompts, k=k, how=how, keys=keys)

    def supervised(self, count: int) -> Replay:
        """The request for the step's supervised examples. Raises TaskError where the task has no answers."""
        stage: StageBase = self.stage
        pool = self.task.examples("train")
        chosen = self._ordered(pool, self.progress.stage_step * count, count, attempt=SUPERVISED)
        targets = [self.task.target(example) for example in chosen]
        assert stage.prompts_per_step == count
        return Replay(policy=self.policy, prompts=chosen, outputs=targets)

    def learn(self, batches: Sequence[Batch], index: int = 0, *, spent: Spent) -> Learn:
        """The request for optimiser step number `index` of a step that sampled so much.

        Shares of the gradient are measured on the first of a step that an evaluation follows.
        """
        rate = stage_learning_rate(self.stage, self.clock, self.table)
        key = RowKey(self.spec.seed, DROPOUT, self.step, 0, index)
        shares = index == 0 and self.clock.due(spent)
        return Learn(update=self.update, batches=batches, learning_rate=rate, key=key, shares=shares)

    def micro_rows(self, rows: int) -> int:
        """Rows of a micro-batch, so that there are gradient_accumulation_steps of them."""
        return max(1, math.ceil(rows / int(self.stage.gradient_accumulation_steps)))

    def score(self, rollout: Rollout, rows: Sequence[int], weights: Weights, wants: frozenset[str] = NOTHING) -> Score:
        """The request that scores these rows in micro-batches."""
        return Score(
            policy=self.policy,
            rollout=rollout,
            rows=rows,
            wants=wants,
            weights=weights,
            micro_rows=self.micro_rows(len(rows)),
        )

    def _ordered(self, pool: Sequence[Example], start: int, count: int, attempt: int) -> list[Example]:
        picked: list[Example] = []
        orders: dict[int, list[int]] = {}
        for position in range(start, start + count):
            epoch, place = divmod(position, len(pool))
            if epoch not in orders:
                orders[epoch] = permutation(RowKey(self.spec.seed, ORDER, epoch, attempt, 0), len(pool))
            picked.append(pool[orders[epoch][place]])
        return picked


def averaged(learned: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Metrics of several optimiser steps as one step's: means, but the largest of maxima and `update` if any was."""
    names = dict.fromkeys(name for metrics in learned for name in metrics)
    row = {}
    for name in names:
        values = [metrics[name] for metrics in learned if name in metrics]
        largest = name in ("update", "policy/ratio_max")
        row[name] = max(values) if largest else sum(values) / len(values)
    return row
