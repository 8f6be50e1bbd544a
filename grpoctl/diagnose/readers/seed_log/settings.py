"""What is known of the configuration: what the log's head prints, and what follows from the public trainer's code.

The trainer is github.com/beita6969/colab-grpo, src/grpo_trainer.py. A log says little of itself; each setting taken
from the code is named in a note, so that a reader of the report can see what it rests on.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from core.health.case import Settings
from grpoctl.diagnose.readers.seed_log.parser import Log

_ACCUMULATED = 8  # completions the trainer puts into one optimiser step: a step of no more makes one


def settings_of(log: Log) -> tuple[Settings, list[str]]:
    """The settings, and a sentence on each thing that is not printed."""
    head = log.head
    sized = next((step for step in reversed(log.steps.values()) if step.k is not None), None)
    known: dict[str, Any] = {
        "num_generations": sized.k if sized else None,
        "prompts_per_step": sized.groups if sized else None,
        "max_steps": head.total_steps,
        "temperature": head.temperature,
        "learning_rate": head.learning_rate,
        "warmup_steps": head.warmup_steps,
        "lr_scheduler_type": "cosine" if head.warmup_steps is not None else None,
        "gradient_checkpointing": head.checkpointing,
        "skip_without_signal": True if log.skips else None,
        "offline": False,
    }
    notes = []
    if head.warmup_steps:
        known["first_update_lr"] = 0.0
        notes.append(
            f"learning rates are not printed: they follow from the head ({head.learning_rate:g}, {head.warmup_steps} "
            "warm-up steps) and the public trainer, whose scheduler starts at 0 and moves with the optimiser only"
            if head.learning_rate is not None
            else "the first update's learning rate, 0, follows from the warm-up and the public trainer's scheduler"
        )
    settings = Settings(**known)
    if log.simple:
        settings = replace(
            settings, transform="none", baseline="group", scale_rewards="group", ddof=0, eps=0.0, std_floor=0.0
        )
        notes.append("advantages are the group's z-score with the population standard deviation: the public trainer")
    if any(step.printed.kl_loss == 0.0 and step.update == 1 for step in log.steps.values()):
        notes.append(
            "loss and KL term are printed every fifth step to four decimals: where they read 0.0000 they are left out "
            "(the trainer's KL is against the policy that sampled)"
        )
    return settings, notes


def derived_rates(log: Log) -> dict[int, dict[str, float | None]]:
    """Step -> the learning rate of its update; {} where the log does not say how many updates were before."""
    head, steps = log.head, list(log.steps.values())
    whole = steps[0].number == 1 and not log.restarts
    small = all((step.groups or 0) * (step.k or 0) <= _ACCUMULATED for step in steps)
    if not (whole and small) or head.learning_rate is None or head.warmup_steps is None or head.total_steps is None:
        return {}
    updates = [step.number for step in steps if step.update == 1]
    peak, warmup, total = head.learning_rate, head.warmup_steps, head.total_steps
    return {number: {"learning_rate": peak * _cosine(index, warmup, total)} for index, number in enumerate(updates)}


def _cosine(index: int, warmup: int, total: int) -> float:
    """The share of the peak at an optimiser step, from 0: transformers' get_cosine_schedule_with_warmup."""
    if index < warmup:
        return index / warmup
    return max(0.0, 0.5 * (1.0 + math.cos(math.pi * (index - warmup) / max(1, total - warmup))))
