"""Specs for the rules, from mappings: no file is read."""

from __future__ import annotations

from typing import Any

from core.config import RunSpec
from core.health.before.view import StageView, views

STAGE: dict[str, Any] = {
    "max_steps": 100,
    "num_generations": 4,
    "prompts_per_step": 2,
    "max_completion_length": 10,
    "learning_rate": 1e-4,
    "lr_scheduler_type": "constant",
}


def run_spec(*, task: str = "workflow-dsl", run: dict[str, Any] | None = None, **stage: Any) -> RunSpec:
    """One GRPO stage named `grpo`, float32, no adapter; `stage` are its settings, `run` the run's."""
    cost = {"operator_cost": 0.0} if task == "workflow-dsl" else {}
    base: dict[str, Any] = {
        "name": "x",
        "title": "t",
        "model": {"source": "builtin:tiny"},
        "task": {"name": task, **cost},
        "stages": {"grpo": {**STAGE, **stage}},
    }
    return RunSpec.model_validate({**base, **(run or {})})


def view(**stage: Any) -> StageView:
    """The one stage of `run_spec`."""
    return next(views(run_spec(**stage)))


ADAPTER = {"r": 4, "lora_alpha": 4.0, "lora_dropout": 0.1, "target_modules": ["q_proj"]}
DROPOUT = {"model": {"source": "builtin:tiny", "lora": ADAPTER}}
BFLOAT16 = {"model": {"source": "builtin:tiny", "dtype": "bfloat16"}}
FAULT = {"faults": ["rollout-in-train-mode"]}
