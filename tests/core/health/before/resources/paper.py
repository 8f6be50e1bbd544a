"""A run and a model that fit on paper."""

from __future__ import annotations

from typing import Any

from core.config import RunSpec
from core.health.before.resources.shapes import Shape

# Two blocks, hidden 8, four heads of 2, two of them for keys, MLP 12, 100 words, untied: 2600 weights.
PAPER = Shape(
    family="llama",
    vocabulary=100,
    hidden=8,
    layers=2,
    heads=4,
    kv_heads=2,
    head_size=2,
    intermediate=12,
    tied=False,
)
LORA = {"r": 2, "lora_alpha": 2, "target_modules": ["q_proj", "k_proj"]}
GRPO = {"max_steps": 10, "num_generations": 2, "prompts_per_step": 2, "max_completion_length": 5, "learning_rate": 0.1}


def run(
    *, model: dict[str, Any] | None = None, grpo: dict[str, Any] | None = None, stages: dict[str, Any] | None = None
) -> RunSpec:
    """2 prompts x 2 completions of up to 5 tokens, LoRA with r=2 on queries and keys, fp32."""
    return RunSpec.model_validate(
        {
            "name": "paper",
            "title": "paper",
            "model": {"source": "paper", "dtype": "float32", "lora": LORA, **(model or {})},
            "task": {"name": "arithmetic", "train_prompts": 20, "eval_prompts": 3},
            "stages": stages or {"grpo": {**GRPO, **(grpo or {})}},
            "evaluation": {"eval_steps": 5, "num_generations_eval": 2},
        }
    )
