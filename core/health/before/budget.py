"""How much a stage samples and updates at most, and what the run's budget leaves to it.

Bounds, as lengths and refills are unknown: a completion has between 1 and max_completion_length tokens; a step is
sampled between once and max_attempts times. The learning rate at a tick is core.algorithms.schedules.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple, assert_never

from core.config import Schedule
from core.health.before.view import StageView, views


@dataclass(frozen=True, kw_only=True, slots=True)
class Bounds:
    """The least and the most there can be."""

    least: int
    most: int


def room(view: StageView) -> Bounds | None:
    """What of the run's budget is left where the stage starts, 0 or less where nothing is; None without a budget."""
    budget = view.spec.budget
    if budget is None:
        return None
    spent = [_spends(before) for before in views(view.spec) if before.steps_before < view.steps_before]
    most, least = sum(stage.most for stage in spent), sum(stage.least for stage in spent)
    return Bounds(least=budget.amount - most, most=budget.amount - least)


def steps(view: StageView) -> Bounds:
    """The steps a stage takes, early stopping aside: as many as it says, or as its run's budget allows."""
    left, own, each = room(view), view.stage.max_steps, of_a_step(view)
    if left is None or each.most == 0:
        return Bounds(least=own, most=own)
    allowed = Bounds(least=max(0, ceil(left.least / each.most)), most=max(0, ceil(left.most / each.least)))
    return allowed if view.clocked else Bounds(least=min(own, allowed.least), most=min(own, allowed.most))


def of_a_step(view: StageView) -> Bounds:
    """What a step takes of the run's budget, in the budget's unit."""
    rows, budget = view.stage.rows_per_step, view.spec.budget
    if budget is None:
        return Bounds(least=rows, most=rows * view.attempts)
    match budget.unit:
        case "completions":
            longest = 1
        case "tokens":
            longest = view.stage.max_completion_length
        case _:
            assert_never(budget.unit)
    return Bounds(least=rows, most=rows * view.attempts * longest)


def _spends(view: StageView) -> Bounds:
    """What a stage before the last one takes; one that may stop early, a step at least."""
    each, most = of_a_step(view), view.stage.max_steps
    return Bounds(least=each.least * (1 if view.stage.early_stopping else most), most=each.most * most)


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget:
    """Upper bounds: a step without signal makes no update, and a completion may end early.

    Where the run has a budget, of as many steps as that allows.
    """

    prompts_per_step: int
    completions_per_step: int  # refills of dynamic sampling left out
    completions_per_update: float  # of stored outputs at most: a group may have fewer
    updates_per_step: int
    min_steps: int  # below max_steps where the run's budget may allow fewer
    max_steps: int
    max_updates: int
    max_completions: int  # refills left out
    max_completions_with_refills: int  # refills included; the last step of a budget may go beyond it
    max_tokens: int  # sampled, refills left out
    passes: float  # over the training prompts
    micro_batch: int  # rows of one forward and backward pass
    first_tick: float  # of the learning rate's clock
    last_tick: float  # at most, with lr_clock `updates`


def budget(view: StageView) -> Budget:
    """The stage's budget."""
    stage, updates = view.stage, view.updates_per_step
    sampled = stage.rows_per_step
    # a supervised step learns from one row for each prompt, one of stored outputs from as many as it would sample
    rows = stage.prompts_per_step * (view.num_generations or 1)
    per_update = rows / (view.grpo.minibatches if view.grpo else 1)
    taken, sampling = steps(view), _sampling(view)
    return Budget(
        prompts_per_step=stage.prompts_per_step,
        completions_per_step=sampled,
        completions_per_update=per_update,
        updates_per_step=updates,
        min_steps=taken.least,
        max_steps=taken.most,
        max_updates=taken.most * updates,
        max_completions=taken.most * sampled,
        max_completions_with_refills=sampling.completions,
        max_tokens=sampling.tokens,
        passes=taken.most * stage.prompts_per_step / view.spec.task.train_prompts,
        micro_batch=math.ceil(per_update / stage.gradient_accumulation_steps),
        first_tick=0,
        last_tick=_last_tick(view, taken),
    )


class _Sampled(NamedTuple):
    completions: int
    tokens: int


def _sampling(view: StageView) -> _Sampled:
    """Completions with refills, and tokens without: by steps, and not beyond the budget but for its last step."""
    taken, rows, length = steps(view).most, view.stage.rows_per_step, view.stage.max_completion_length
    completions, tokens = taken * rows * view.attempts, taken * rows * length
    left, budget = room(view), view.spec.budget
    if left is None or budget is None or left.most <= 0 or not rows:
        return _Sampled(completions, tokens)
    match budget.unit:
        case "completions":
            return _Sampled(min(completions, left.most - 1 + rows * view.attempts), tokens)
        case "tokens":
            return _Sampled(completions, min(tokens, left.most - 1 + rows * length))
        case _:
            assert_never(budget.unit)


def _last_tick(view: StageView, taken: Bounds) -> float:
    """The learning rate's tick of the last step, where each step has an update; up to the budget's last unit."""
    left, each = room(view), of_a_step(view)
    if not view.clocked or left is None or left.most <= 0:
        return max(0, taken.most - 1)
    spent = (taken.most - 1) * each.most if each.least == each.most else left.most - 1
    return view.stage.max_steps * spent / left.most


def evaluations_before_the_end(view: StageView) -> int:
    """The stage's own evaluations after which it still trains, at most: the last one is left out."""
    every, first = view.spec.evaluation.eval_steps, view.steps_before
    return min((first + view.stage.max_steps - 1) // every - first // every, max(0, steps(view).most - 1))


def least_value(view: StageView, schedule: Schedule) -> float:
    """The least a schedule can come to, a cut at every plateau that its stage has room for; 0 while it warms up."""
    if schedule.warmup > (0 if view.clocked else 1):
        return 0.0
    lowest, rule = min(schedule.start, schedule.end), schedule.plateau
    if rule is None:
        return lowest
    return lowest * rule.factor ** (max(0, evaluations_before_the_end(view) - 1) // rule.patience)


def evaluation_error(view: StageView) -> tuple[float, float]:
    """Bounds of one evaluation's standard error at mean reward 0.5, rewards 0 or 1: best and worst case.

    0.5 / sqrt(prompts x generations) where completions of a prompt are independent, 0.5 / sqrt(prompts) where all are
    alike.
    """
    prompts, each = view.spec.task.eval_prompts, view.spec.evaluation.num_generations_eval
    return 0.5 / math.sqrt(prompts * each), 0.5 / math.sqrt(prompts)
