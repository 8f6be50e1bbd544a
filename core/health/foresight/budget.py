"""How much a stage samples and updates at most. The learning rate at a tick is core.algorithms.schedules."""

from __future__ import annotations

import math
from dataclasses import dataclass

from core.health.foresight.view import StageView


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget:
    """Upper bounds: a step without signal makes no update, and a completion may end early."""

    prompts_per_step: int
    completions_per_step: int  # refills of dynamic sampling left out
    completions_per_update: float
    updates_per_step: int
    max_steps: int
    max_updates: int
    max_completions: int  # refills left out
    max_completions_with_refills: int
    max_tokens: int  # sampled, refills left out
    passes: float  # over the training prompts
    micro_batch: int  # rows of one forward and backward pass
    first_tick: int  # of the learning rate's clock
    last_tick: int  # at most, with lr_clock `updates`


def budget(view: StageView) -> Budget:
    """The stage's budget."""
    stage, updates = view.stage, view.updates_per_step
    sampled = stage.rows_per_step
    rows = sampled or stage.prompts_per_step  # a supervised step learns from one row for each prompt
    per_update = rows / (view.grpo.minibatches if view.grpo else 1)
    dynamic = view.grpo.dynamic_sampling if view.grpo else None
    ticks = stage.max_steps * (updates if stage.lr_clock == "updates" else 1)
    return Budget(
        prompts_per_step=stage.prompts_per_step,
        completions_per_step=sampled,
        completions_per_update=per_update,
        updates_per_step=updates,
        max_steps=stage.max_steps,
        max_updates=stage.max_steps * updates,
        max_completions=stage.max_steps * sampled,
        max_completions_with_refills=stage.max_steps * sampled * (dynamic.max_attempts if dynamic else 1),
        max_tokens=stage.max_steps * sampled * stage.max_completion_length,
        passes=stage.max_steps * stage.prompts_per_step / view.spec.task.train_prompts,
        micro_batch=math.ceil(per_update / stage.gradient_accumulation_steps),
        first_tick=0,
        last_tick=ticks - 1,
    )


def evaluations_before_the_end(view: StageView) -> int:
    """Evaluations after which the stage still trains, at most: the one before it included, the last one left out."""
    every, first = view.spec.evaluation.eval_steps, view.steps_before
    return (first + view.stage.max_steps - 1) // every - first // every + 1


def evaluation_error(view: StageView) -> tuple[float, float]:
    """Bounds of one evaluation's standard error at mean reward 0.5, rewards 0 or 1: best and worst case.

    0.5 / sqrt(prompts x generations) where completions of a prompt are independent, 0.5 / sqrt(prompts) where all are
    alike.
    """
    prompts, each = view.spec.task.eval_prompts, view.spec.evaluation.num_generations_eval
    return 0.5 / math.sqrt(prompts * each), 0.5 / math.sqrt(prompts)
