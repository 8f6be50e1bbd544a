"""The package of tests/added_package inside this process: its specs, and a spec as its user writes one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from core.config import RunSpec

PACKAGE = Path(__file__).with_name("added_package")
STAGE: dict[str, Any] = {
    "max_steps": 6,
    "num_generations": 8,
    "prompts_per_step": 4,
    "learning_rate": 0.03,
    "lr_scheduler_type": "constant",
}

BANDIT = """\
name: bandit
title: Reach a point
policy: {kind: gaussian-bandit, context: 3, actions: 2}
task: {name: reach, train_prompts: 8, eval_prompts: 4}
stages: {grpo: {max_steps: 2, num_generations: 4, prompts_per_step: 2, learning_rate: 0.03}}
"""  # a user's file


def bandit_spec(stage: dict[str, Any] | None = None, **changes: Any) -> RunSpec:
    """A spec of the bandit with one GRPO stage. The package must be on the path (monkeypatch.syspath_prepend)."""
    plain: dict[str, Any] = {
        "name": "bandit",
        "title": "reach a point",
        "policy": {"kind": "gaussian-bandit"},
        "task": {"name": "reach", "train_prompts": 16, "eval_prompts": 8},
        "stages": {"grpo": {**STAGE, **(stage or {})}},
        "evaluation": {"eval_steps": 2},
    }
    return RunSpec.model_validate(plain | changes)
