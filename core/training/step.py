"""What a step of any stage is given and hands back, and the groups it learns from.

Groups are sampled, scored, looked at by the guards, and refilled where dynamic sampling asks for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from core.algorithms.advantages import dead_groups, kept_counts, whole
from core.config import GrpoStage, RunSpec, Schedule
from core.health.finding import Row
from core.health.own_noise import CANARY_COLUMNS, Noise, times
from core.policies.base import ENTROPY, Policy, Rollout, Sampling, Scores, Weights
from core.policies.savings import Savings
from core.randomness import DROPOUT, ORDER, TRAIN, RowKey, permutation
from core.tasks.base import Example, Task, names_of
from core.training.checkpoint import Progress
from core.training.clock import Clock, Spent, at, stage_learning_rate
from core.training.metrics import canary_gap, integrity_metrics, rollout_metrics, sample_rows
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
    canary: Rollout | None = None  # the fixed row that the sampler is asked about, where the policy has one
    noise: Noise | None = None  # the run's own, where it was measured before step 1

    @property
    def step(self) -> int:
        """The run's step, from 1."""
        return self.progress.step + 1

    def now(self, schedule: Schedule) -> float:
        """A schedule's value on this step."""
        return at(schedule, self.clock.position, self.table)

    def prompts(self, start: int, count: int, attempt: int = 0) -> list[Example]:
        """Training prompts `start` to `start + count` in an order that is shuffled anew each epoch."""
        pool = self.task.examples("train")
        examples: list[Example] = []
        orders: dict[int, list[int]] = {}
        for position in range(start, start + count):
            epoch, place = divmod(position, len(pool))
            if epoch not in orders:
                orders[epoch] = permutation(RowKey(self.spec.seed, ORDER, epoch, attempt, 0), len(pool))
            examples.append(pool[orders[epoch][place]])
        return examples

    def supervised(self) -> Replay:
        """The request for the step's supervised examples. Raises TaskError where the task has no answers."""
        count = int(self.stage.prompts_per_step)
        examples = self.prompts(self.progress.stage_step * count, count, attempt=SUPERVISED)
        answers = [self.task.target(example) for example in examples]
        return Replay(policy=self.policy, prompts=examples, outputs=answers)

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

    def score(
        self, rollout: Rollout, rows: Sequence[int], weights: Weights, wants: frozenset[str] = NOTHING
    ) -> Generator[Request, Any, Scores]:
        """Scores of these rows, computed in micro-batches, in tensors of all rows (N, T): 0 elsewhere."""
        micro_rows = self.micro_rows(len(rows))
        scores: Scores = yield Score(
            policy=self.policy, rollout=rollout, rows=rows, wants=wants, weights=weights, micro_rows=micro_rows
        )

        def of_all(values_RT: Tensor) -> Tensor:
            values_NT = torch.zeros_like(rollout.mask_NT, dtype=torch.float32)
            values_NT[list(rows)] = values_RT.to(values_NT)
            return values_NT

        entropies_RT = scores.entropies_NT
        return Scores(
            logprobs_NT=of_all(scores.logprobs_NT),
            entropies_NT=None if entropies_RT is None else of_all(entropies_RT),
        )


def kept_candidates(context: StepContext, rewards_PK: Tensor) -> Tensor:
    """The rewards of the candidates that take part on this step; the others are missing."""
    keep = getattr(context.stage, "keep_candidates", None)
    if keep is None:
        return rewards_PK
    kept_PK = torch.from_numpy(kept_counts(rewards_PK.numpy(), whole(context.now(keep))))
    return rewards_PK.masked_fill(kept_PK == 0, math.nan)


def rows_of(groups: Sequence[int], k: int) -> list[int]:
    """The rows of these groups."""
    return [row for group in groups for row in range(group * k, (group + 1) * k)]


@dataclass(frozen=True, kw_only=True, slots=True)
class StepGroups:
    """All groups that were sampled on a step, and the indices of those to learn from.

    `records` are what samples.jsonl keeps of each output. `ending` is a guard's verdict: nothing is learned then.
    """

    groups: Groups
    chosen: Sequence[int]
    prompts: int
    records: Sequence[Mapping[str, object]]
    integrity: Mapping[str, float]
    ending: Ending | None
    held_out: float  # share of the prompts that are the evaluation's, too
    tokens: bool  # whether outputs are made of tokens
    virtual_best: float | None = None

    def row(self, advantages_PK: Tensor) -> dict[str, float]:
        """The step's metrics of everything that was sampled."""
        return {
            **rollout_metrics(
                self.groups, advantages_PK, records=self.records, tokens=self.tokens, virtual_best=self.virtual_best
            ),
            "groups/discarded": len(self.groups.rewards_PK) - len(self.chosen),
            "groups/held_out": self.held_out,
            **self.integrity,
        }

    @property
    def spent(self) -> Spent:
        """What was sampled, groups that nothing is learned from included."""
        rollout = self.groups.rollout
        return Spent(completions=len(rollout), tokens=int(rollout.mask_NT.sum()))

    def result(
        self, context: StepContext, row: Mapping[str, float], advantages_PK: Tensor, carried: Mapping[str, float]
    ) -> StepResult:
        """The result of the step, its samples included."""
        return StepResult(
            row=row,
            samples=sample_rows(self.groups, self.records, advantages_PK, context.step),
            spent=self.spent,
            prompts=self.prompts,
            carried=carried,
            ending=self.ending,
        )


def sample_and_score(context: StepContext, how: Sampling) -> Generator[Request, Any, StepGroups]:
    """Sample the step's prompts, check one group's integrity, and go on sampling while groups are missing.

    Groups are chosen by their unshaped rewards. At the cap the step goes on with the groups it has.
    """
    stage, policy, task = context.stage, context.policy, context.task
    size, k = int(stage.prompts_per_step), int(stage.num_generations)
    dynamic = stage.dynamic_sampling if isinstance(stage, GrpoStage) else None
    virtual_best = stage.advantage.virtual_best if isinstance(stage, GrpoStage) else None
    parts: list[Groups] = []
    chosen: list[int] = []
    drawn = 0
    integrity: Mapping[str, float] = {}
    ending: Ending | None = None
    for attempt in range(1 if dynamic is None else dynamic.max_attempts):
        missing = size - len(chosen)
        if attempt > 0 and (missing == 0 or ending is not None):
            break
        prompts = context.prompts(context.progress.prompts + drawn, missing)
        keys = [RowKey(context.spec.seed, TRAIN, context.step, attempt, row) for row in range(missing * k)]
        asked = replace(how, canary=attempt == 0 and _canary_due(context))
        rollout = yield Sample(policy=policy, prompts=prompts, k=k, how=asked, keys=keys)
        groups: Groups = yield Reward(task=task, rollout=rollout, step=context.progress.step)
        if attempt == 0:
            integrity = yield from _integrity(context, rollout)
            finite = {name: value if math.isfinite(value) else None for name, value in integrity.items()}
            ending = context.look({"step": context.step, **finite})
        chosen += [drawn + index for index in _useful(context, groups, dynamic is not None, virtual_best)]
        parts.append(groups)
        drawn += missing
    if len(parts) > 1:
        groups = Groups(
            rollout=policy.join([part.rollout for part in parts]),
            outcomes=[outcome for part in parts for outcome in part.outcomes],
            rewards_PK=torch.cat([part.rewards_PK for part in parts]),
        )
    return StepGroups(
        groups=groups,
        chosen=chosen,
        prompts=drawn,
        records=[task.record(output) for output in groups.rollout.outputs],
        integrity=integrity,
        ending=ending,
        held_out=fmean(not context.held_out.isdisjoint(names_of(prompt)) for prompt in groups.rollout.prompts),
        tokens=context.spec.policy.tokens,
        virtual_best=virtual_best,
    )


def _canary_due(context: StepContext) -> bool:
    """True on steps that run the canary: a stage's first two, every so many, and after one that exceeded the noise."""
    if context.canary is None:
        return False
    last = times(context.table[-1], *CANARY_COLUMNS) if context.table else None
    first = context.progress.stage_step < 2
    return first or context.step % context.policy.canary_every == 0 or (last is not None and last > 1)


def _integrity(context: StepContext, rollout: Rollout) -> Generator[Request, Any, dict[str, float]]:
    """The gap between recorded and clean log-probs on one whole group, each in its turn, and on the canary.

    Beside each stands the smallest gap that would exceed the run's own noise on this step.
    """
    settings, size, noise = context.spec.policy, int(context.stage.prompts_per_step), context.noise
    rows = rows_of([(context.step - 1) % size], int(context.stage.num_generations))
    wants = frozenset({ENTROPY}) if settings.entropies else NOTHING
    temperature, canary_T = rollout.how.temperature, rollout.canary_T
    canary = None if canary_T is None else context.canary
    # In one forward with the group it costs little. A group that is narrower would be padded, and round otherwise.
    fits = canary is not None and int(rollout.mask_NT[rows].sum(-1).max()) >= canary.mask_NT.shape[1]
    joined = [canary] if canary is not None and fits else []
    clean: Scores = yield Score(
        policy=context.policy,
        rollout=context.policy.join([rollout, *joined]),
        rows=[*rows, *range(len(rollout), len(rollout) + len(joined))],
        wants=wants,
    )
    limit = None if noise is None else noise.limit(temperature)
    of_group = clean.cut(len(rows), rollout.mask_NT.shape[1])
    metrics = integrity_metrics(rollout, rows, of_group, density=settings.density, limit=limit)
    if canary is not None and canary_T is not None:
        own = replace(canary, how=rollout.how)
        of_canary: Scores = clean if joined else (yield Score(policy=context.policy, rollout=own, rows=[0]))
        scored_T = of_canary.logprobs_NT[-1, : len(canary_T)]
        metrics["canary/logit_gap"] = canary_gap(canary_T, scored_T, density=settings.density)
        if noise is not None:
            metrics["canary/detectable_gap"] = noise.canary_limit(temperature)
    return metrics


def _useful(context: StepContext, groups: Groups, live: bool, virtual_best: float | None) -> list[int]:
    """The groups that a step may learn from: with `live`, only those whose rewards differ (the virtual best counts)."""
    stage, rewards_PK = context.stage, kept_candidates(context, groups.rewards_PK)
    useful_P = torch.ones(len(rewards_PK), dtype=torch.bool)
    if live:
        useful_P &= ~torch.from_numpy(dead_groups(rewards_PK.numpy(), virtual_best))
    if stage.positive_reward is not None:
        useful_P &= (rewards_PK.nan_to_num(-math.inf) >= stage.positive_reward).any(-1)
    return [int(index) for index in useful_P.nonzero().squeeze(-1)]
