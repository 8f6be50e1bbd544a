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

from core.algorithms.advantages import choice_scores, dead_groups, kept_counts, whole
from core.config import GrpoStage, RunSpec, Schedule
from core.health.finding import Row
from core.health.own_noise import CANARY_COLUMNS, GROUP_COLUMNS, Noise, times
from core.policies.base import ENTROPY, Policy, Rollout, Sampling, Scores, Weights
from core.policies.savings import Savings
from core.randomness import CHOICE, DROPOUT, ORDER, TRAIN, RowKey, permutation
from core.tasks.base import Example, Task, names_of
from core.training.checkpoint import Progress
from core.training.clock import Clock, Spent, at, stage_learning_rate
from core.training.metrics import canary_metrics, integrity_metrics, rescoring_gap, rollout_metrics, sample_rows
from core.training.outcome import Ending
from core.training.requests import ABSENT, Groups, Learn, Replay, Request, Reward, Sample, Score
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


class HeldOut:
    """The evaluation's problems: which of others are the same, by id or by what the policy is given."""

    def __init__(self, examples: Sequence[Example]) -> None:
        self._examples = examples
        self._names: dict[frozenset[str], frozenset[str]] = {}  # by the inputs that are compared
        self._seen: dict[str, bool] = {}  # by id: a problem comes again in each epoch, and may have large inputs

    def has(self, example: Example) -> bool:
        """Whether the evaluation asks this problem too, whatever else it gives the policy (`choices` of files)."""
        if example.id not in self._seen:
            keys = frozenset(example.inputs)
            if keys not in self._names:
                shared = ({key: one.inputs[key] for key in keys & set(one.inputs)} for one in self._examples)
                alike = (replace(one, inputs=inputs) for one, inputs in zip(self._examples, shared, strict=True))
                self._names[keys] = frozenset(name for one in alike for name in names_of(one))
            self._seen[example.id] = not self._names[keys].isdisjoint(names_of(example))
        return self._seen[example.id]


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
    held_out: HeldOut = field(default_factory=lambda: HeldOut(()))
    canary: Rollout | None = None  # the fixed row that the sampler is asked about, where the policy has one
    noise: Noise | None = None  # the run's own, where it was measured before step 1

    @property
    def step(self) -> int:
        """The run's step, from 1."""
        return self.progress.step + 1

    @property
    def begins_epoch(self) -> bool:
        """Whether the stage begins with this step, or goes through its training prompts anew from it on."""
        done, size, prompts = self.progress.stage_step, self.stage.prompts_per_step, self.spec.task.train_prompts
        return done == 0 or done * size // prompts > (done - 1) * size // prompts

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


def kept_candidates(context: StepContext, rewards_PK: Tensor, groups: Groups, first: int = 0) -> Tensor:
    """The rewards of the candidates that take part on this step; the others are missing.

    `first` is the number of the step's groups before these. Of stored outputs only those that take part are in a group.
    """
    stage = context.stage
    if stage.keep_candidates is None or stage.groups == "offline":
        return rewards_PK
    return rewards_PK.masked_fill(~_taking_part(context, rewards_PK, groups.right, first), math.nan)


def _taking_part(context: StepContext, rewards_PK: Tensor, right_PK: Tensor, first: int) -> Tensor:
    """(P, K) bool: the candidates that the stage's choice keeps of each group."""
    stage, (prompts, k) = context.stage, rewards_PK.shape
    keep = k if stage.keep_candidates is None else whole(context.now(stage.keep_candidates))
    if stage.groups == "offline":
        keep = min(keep, int(stage.num_generations))
    orders = None
    if stage.candidate_choice != "best":
        keys = [RowKey(context.spec.seed, CHOICE, context.step, 0, first + group) for group in range(prompts)]
        orders = [permutation(key, k) for key in keys]
    scores_PK = choice_scores(rewards_PK.numpy(), stage.candidate_choice, orders_PK=orders, right_PK=right_PK.numpy())
    return torch.from_numpy(kept_counts(scores_PK, keep)) > 0


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

    def row(self, advantages_PK: Tensor, members_PK: Tensor | None = None) -> dict[str, float]:
        """The step's metrics of everything that was sampled; `members_PK` are those that advantages are of."""
        return {
            **rollout_metrics(
                self.groups,
                advantages_PK,
                records=self.records,
                members_PK=members_PK,
                tokens=self.tokens,
                virtual_best=self.virtual_best,
            ),
            "groups/discarded": len(self.groups.rewards_PK) - len(self.chosen),
            "groups/held_out": self.held_out,
            **self.integrity,
        }

    @property
    def spent(self) -> Spent:
        """What was sampled, groups that nothing is learned from included; of stored outputs none was."""
        rollout = self.groups.rollout
        if rollout.drawn_NT is None:
            return Spent()
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
        if stage.groups == "offline":
            groups: Groups = yield from _stored_groups(context, prompts, drawn)
        else:
            keys = [RowKey(context.spec.seed, TRAIN, context.step, attempt, row) for row in range(missing * k)]
            asked = replace(how, canary=attempt == 0 and _canary_due(context))
            rollout = yield Sample(policy=policy, prompts=prompts, k=k, how=asked, keys=keys)
            groups = yield Reward(task=task, rollout=rollout, step=context.progress.step)
        if attempt == 0:
            integrity = yield from _integrity(context, groups.rollout)
            finite = {name: value if math.isfinite(value) else None for name, value in integrity.items()}
            ending = context.look({"step": context.step, **finite})
        chosen += [drawn + index for index in _useful(context, groups, dynamic is not None, virtual_best, drawn)]
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
        held_out=fmean(context.held_out.has(prompt) for prompt in groups.rollout.prompts),
        tokens=context.spec.policy.tokens,
        virtual_best=virtual_best,
    )


def _stored_groups(context: StepContext, prompts: Sequence[Example], first: int) -> Generator[Request, Any, Groups]:
    """The outputs that the task has stored for these prompts, those that take part: K rows each, ABSENT ones behind.

    `first` is the number of the step's groups before these.
    """
    k = int(context.stage.num_generations)
    stored = [context.task.stored(prompt) for prompt in prompts]
    widest = max(k, *map(len, stored))
    filled = [output for outputs in stored for output in [*outputs, *[outputs[0]] * (widest - len(outputs))]]
    rows = [prompt for prompt in prompts for _ in range(widest)]
    there_PC = torch.tensor([[column < len(outputs) for column in range(widest)] for outputs in stored])
    replayed: Rollout = yield Replay(policy=context.policy, prompts=rows, outputs=filled)
    rollout = replace(
        replayed,
        prompts=prompts,
        prompt_N=torch.arange(len(prompts)).repeat_interleave(widest),
        mask_NT=replayed.mask_NT & there_PC.view(-1, 1),
    )
    groups: Groups = yield Reward(task=context.task, rollout=rollout, step=context.progress.step)
    kept_PC = _taking_part(context, groups.rewards_PK, groups.right, first)
    # Those that take part first, each in its place among them; then as many others as fill the group.
    columns_PK = (~kept_PC).to(torch.int8).argsort(dim=-1, stable=True)[:, :k]
    order_N = (columns_PK + widest * torch.arange(len(prompts)).unsqueeze(-1)).flatten()
    kept_N = kept_PC.flatten()[order_N]
    chosen, order = rollout.reordered(order_N), order_N.tolist()
    return Groups(
        rollout=replace(chosen, mask_NT=chosen.mask_NT & kept_N.unsqueeze(-1)),
        outcomes=[groups.outcomes[row] if kept else ABSENT for row, kept in zip(order, kept_N.tolist(), strict=True)],
        rewards_PK=groups.rewards_PK.masked_fill(~kept_PC, math.nan).gather(-1, columns_PK),
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

    Beside each stands the smallest gap that would exceed the run's own noise on this step. Where one does, the trainer
    scores the group again, row by row: what that differs by is noise of this step, however little there was before.
    """
    settings, size, noise = context.spec.policy, int(context.stage.prompts_per_step), context.noise
    rows = rows_of([(context.step - 1) % size], int(context.stage.num_generations))
    wants = frozenset({ENTROPY}) if settings.entropies else NOTHING
    canary_T = rollout.canary_T
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
    of_group, of_canary = clean.cut(len(rows), rollout.mask_NT.shape[1]), clean
    if canary is not None and not joined:
        of_canary = yield Score(policy=context.policy, rollout=replace(canary, how=rollout.how), rows=[0])

    def gaps(noise: Noise | None) -> dict[str, float]:
        metrics = integrity_metrics(rollout, rows, of_group, density=settings.density, noise=noise)
        if canary_T is None or canary is None:
            return metrics
        scored_T = of_canary.logprobs_NT[-1, : len(canary_T)]
        temperature = rollout.how.temperature
        return metrics | canary_metrics(canary_T, scored_T, temperature, density=settings.density, noise=noise)

    metrics = gaps(noise)
    beyond = any((times(metrics, *columns) or 0.0) > 1 for columns in (GROUP_COLUMNS, CANARY_COLUMNS))
    if noise is None or not beyond:
        return metrics
    alone: dict[int, Scores] = {}
    for row in rows:
        alone[row] = yield Score(policy=context.policy, rollout=rollout, rows=[row], name="calibrate")
    again = rescoring_gap(rollout.mask_NT[rows], of_group, list(alone.values()), density=settings.density)
    return gaps(noise.at_least(again))


def _useful(context: StepContext, groups: Groups, live: bool, virtual_best: float | None, first: int) -> list[int]:
    """The groups that a step may learn from: with `live`, only those whose rewards differ (the virtual best counts).

    `first` is the number of the step's groups before these.
    """
    stage, rewards_PK = context.stage, kept_candidates(context, groups.rewards_PK, groups, first)
    useful_P = torch.ones(len(rewards_PK), dtype=torch.bool)
    if live:
        useful_P &= ~torch.from_numpy(dead_groups(rewards_PK.numpy(), virtual_best))
    if stage.positive_reward is not None:
        useful_P &= (rewards_PK.nan_to_num(-math.inf) >= stage.positive_reward).any(-1)
    return [int(index) for index in useful_P.nonzero().squeeze(-1)]
