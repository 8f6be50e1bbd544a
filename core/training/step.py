"""What a step of any stage is given and hands back, and the groups it learns from.

Groups are sampled, scored, looked at by the guards, and refilled where dynamic sampling asks for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from core.algorithms.advantages import dead_groups
from core.algorithms.candidates import kept_counts, whole
from core.config import GrpoStage, RunSpec, Schedule, StageBase
from core.health.finding import Row
from core.policies.base import ENTROPY, Policy, Rollout, Sampling, Weights
from core.policies.savings import Savings
from core.randomness import DROPOUT, ORDER, TRAIN, RowKey, permutation
from core.tasks.base import Example, Task, names_of
from core.training.checkpoint import Progress
from core.training.clock import Clock, Spent, at, stage_learning_rate
from core.training.metrics import distinct_outputs, integrity_metrics, rollout_metrics
from core.training.outcome import Ending
from core.training.requests import Groups, Learn, Replay, Request, Reward, Sample, Score
from core.training.update import Batch, Update

NOTHING: frozenset[str] = frozenset()
SUPERVISED = 1  # attempt number under ORDER: supervised examples have an order of their own


@dataclass(frozen=True, kw_only=True, slots=True)
class StepResult:
    """The result of a step. `prompts` were drawn for it; `carried` is handed to the stage's next step."""

    row: Mapping[str, float]
    samples: Sequence[Mapping[str, object]] = ()
    spent: Spent = field(default_factory=Spent)
    prompts: int = 0
    carried: Mapping[str, float] = field(default_factory=dict)
    ending: Ending | None = None


StepRun = Generator[Request, Any, StepResult]


@dataclass(frozen=True, kw_only=True, slots=True)
class StepContext:
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
        examples: list[Example] = []
        orders: dict[int, list[int]] = {}
        for position in range(start, start + count):
            epoch, place = divmod(position, len(pool))
            if epoch not in orders:
                orders[epoch] = permutation(RowKey(self.spec.seed, ORDER, epoch, attempt, 0), len(pool))
            examples.append(pool[orders[epoch][place]])
        return examples


def averaged(learned: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Metrics of several optimiser steps as one step's: means, but the largest of maxima and `update` if any was."""
    names = dict.fromkeys(name for metrics in learned for name in metrics)
    row = {}
    for name in names:
        values = [metrics[name] for metrics in learned if name in metrics]
        largest = name in ("update", "policy/ratio_max")
        row[name] = max(values) if largest else sum(values) / len(values)
    return row


def kept_candidates(context: StepContext, rewards_PK: Tensor) -> Tensor:
    """The rewards of the candidates that take part on this step; the others are missing."""
    keep = getattr(context.stage, "keep_candidates", None)
    if keep is None:
        return rewards_PK
    kept_PK = torch.from_numpy(kept_counts(rewards_PK.numpy(), whole(context.now(keep))))
    return rewards_PK.masked_fill(kept_PK == 0, math.nan)


@dataclass(frozen=True, kw_only=True, slots=True)
class StepGroups:
    """All groups that were sampled on a step, and the indices of those to learn from."""

    groups: Groups
    chosen: Sequence[int]
    prompts: int
    integrity: Mapping[str, float]
    ending: Ending | None
    held_out: float
    distinct: int  # different outputs
    tokens: bool  # whether outputs are made of tokens
    virtual_best: float | None = None

    def row(self, advantages_PK: Tensor) -> dict[str, float]:
        """The step's metrics of everything that was sampled."""
        discarded = len(self.groups.rewards_PK) - len(self.chosen)
        return {
            **rollout_metrics(
                self.groups,
                advantages_PK,
                distinct=self.distinct,
                tokens=self.tokens,
                virtual_best=self.virtual_best,
            ),
            "groups/discarded": discarded,
            "groups/held_out": self.held_out,
            **self.integrity,
        }

    @property
    def spent(self) -> Spent:
        """What was sampled, groups that nothing is learned from included."""
        rollout = self.groups.rollout
        return Spent(completions=len(rollout), tokens=int(rollout.mask_NT.sum()))

    def done(
        self, row: Mapping[str, float], samples: Sequence[Mapping[str, object]], carried: Mapping[str, float]
    ) -> StepResult:
        """The step as it ended."""
        return StepResult(
            row=row,
            samples=samples,
            spent=self.spent,
            prompts=self.prompts,
            carried=carried,
            ending=self.ending,
        )


def gather(context: StepContext, how: Sampling) -> Generator[Request, Any, StepGroups]:
    """Sample the step's prompts, check one group's integrity, and go on sampling while groups are missing.

    Groups are chosen by their unshaped rewards. At the cap the step goes on with the groups it has.
    """
    stage, size = context.stage, int(context.stage.prompts_per_step)
    parts: list[Groups] = [(yield from _sample_groups(context, how, 0, size, 0))]
    integrity = yield from _integrity(context, parts[0])
    finite = {name: value if math.isfinite(value) else None for name, value in integrity.items()}
    ending = context.look({"step": context.step, **finite})
    dynamic = stage.dynamic_sampling if isinstance(stage, GrpoStage) else None
    chosen, drawn = _useful(context, parts[0], live=dynamic is not None), size
    for attempt in range(1, dynamic.max_attempts if dynamic is not None and ending is None else 1):
        if (missing := size - len(chosen)) == 0:
            break
        parts.append((yield from _sample_groups(context, how, drawn, missing, attempt)))
        chosen += [drawn + index for index in _useful(context, parts[-1], live=True)]
        drawn += missing
    groups = parts[0]
    if len(parts) > 1:
        groups = Groups(
            rollout=context.policy.join([part.rollout for part in parts]),
            outcomes=[outcome for part in parts for outcome in part.outcomes],
            rewards_PK=torch.cat([part.rewards_PK for part in parts]),
        )
    return StepGroups(
        groups=groups,
        chosen=chosen,
        prompts=drawn,
        integrity=integrity,
        ending=ending,
        held_out=fmean(not context.held_out.isdisjoint(names_of(prompt)) for prompt in groups.rollout.prompts),
        distinct=distinct_outputs(context.task, groups.rollout),
        tokens=context.spec.policy.tokens,
        virtual_best=_virtual_best(stage),
    )


def rows_of(groups: Sequence[int], k: int) -> list[int]:
    """The rows of these groups."""
    return [row for group in groups for row in range(group * k, (group + 1) * k)]


def _sample_groups(
    context: StepContext, how: Sampling, offset: int, count: int, attempt: int
) -> Generator[Request, Any, Groups]:
    """The scored groups of `count` prompts, `offset` prompts after those of earlier steps."""
    prompts = context.prompts(context.progress.prompts + offset, count)
    rollout = yield context.sample(prompts, int(context.stage.num_generations), how, attempt)
    groups: Groups = yield Reward(task=context.task, rollout=rollout, step=context.progress.step)
    return groups


def _integrity(context: StepContext, groups: Groups) -> Generator[Request, Any, dict[str, float]]:
    """The gap between recorded and clean log-probs on one whole group: each takes its turn."""
    k = int(context.stage.num_generations)
    rows = rows_of([(context.step - 1) % int(context.stage.prompts_per_step)], k)
    policy = context.spec.policy
    wants = frozenset({ENTROPY}) if policy.entropies else NOTHING
    clean = yield Score(policy=context.policy, rollout=groups.rollout, rows=rows, wants=wants)
    return integrity_metrics(groups.rollout, rows, clean, density=policy.density)


def _useful(context: StepContext, groups: Groups, *, live: bool) -> list[int]:
    """The groups that a step may learn from: with `live`, only those whose rewards differ (the virtual best counts)."""
    stage, rewards_PK = context.stage, kept_candidates(context, groups.rewards_PK)
    useful_P = torch.ones(len(rewards_PK), dtype=torch.bool)
    if live:
        useful_P &= ~torch.from_numpy(dead_groups(rewards_PK.numpy(), _virtual_best(stage)))
    if stage.positive_reward is not None:
        useful_P &= (rewards_PK.nan_to_num(-math.inf) >= stage.positive_reward).any(-1)
    return [int(index) for index in useful_P.nonzero().squeeze(-1)]


def _virtual_best(stage: Any) -> float | None:
    return stage.advantage.virtual_best if isinstance(stage, GrpoStage) else None
