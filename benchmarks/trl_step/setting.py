"""What is compared: the setting in neither tool's words, and as grpoctl's spec. Not here: TRL's words (theirs)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from core.config import RunSpec

RATE, CLIPPED_AT, TARGETS = 1e-5, 1.0, ("q_proj", "k_proj", "v_proj", "o_proj")
LORA_R, LORA_ALPHA = 16, 32
AMPLE = 10**6  # steps: no evaluation and no checkpoint is due, and neither tool comes to its end
PROMPTS = 64  # in one order for both tools, which holds for so many divided by prompts_per_step steps
AUTOCAST = "autocast"
ASKED = "Name one thing that goes with these, in a few words:"
WORDS = [
    "river", "apple", "copper", "window", "winter", "garden", "silver", "engine", "island", "letter", "music", "bread",
    "forest", "candle", "bridge", "planet", "market", "spoon", "desert", "violin", "harbour", "lemon", "needle",
]  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """One row of the comparison. `prompt_tokens` with the chat template; `fixed`: no completion ends early."""

    prompt_tokens: int = 57
    new_tokens: int = 32
    beta: float = 0.0
    fixed: bool = True
    groups: int = 4
    size: int = 8  # completions of a prompt
    micro_batches: int = 1  # of either tool, where all rows at once do not fit
    threads: int = 2
    cuda: bool = False
    seed: int = 0

    @property
    def rows(self) -> int:
        """Completions of a step."""
        return self.groups * self.size


@dataclass(frozen=True, kw_only=True, slots=True)
class Own:
    """A way to run grpoctl: `dtype` as in `model.dtype`, or `autocast`; the savings that are switched off."""

    dtype: str
    without: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.dtype + "".join(f" without {name}" for name in self.without)


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One measured step: `trained` are the tokens that the loss learned from, `parts` seconds by kind of request.

    `cpu` are the process's seconds on all cores: what others on the machine take is not in them, as it is in `seconds`.
    """

    seconds: float
    cpu: float
    generated: int
    trained: int
    parts: dict[str, float]


def questions(tokenizer: Any, setting: Setting) -> list[str]:
    """Different prompts of about the setting's length, within two tokens: lengths differ, so there is padding."""
    random, found = Random(setting.seed), []
    for number in range(PROMPTS + 1):  # one is held out
        goal, text = setting.prompt_tokens - 2 + number % 4, ASKED
        while _length(tokenizer, text) < goal:
            text += f" {random.choice(WORDS)}"
        found.append(text)
    return found


def write_questions(texts: Sequence[str], folder: Path) -> Path:
    """A .jsonl file with them."""
    file = folder / "questions.jsonl"
    file.write_text("".join(json.dumps({"question": text}) + "\n" for text in texts), encoding="utf-8")
    return file


def spec_of(setting: Setting, own: Own, model: Path, data: Path, *, clipped_at: float = CLIPPED_AT) -> RunSpec:
    """The setting as a run's spec; all that is not said here is as every run has it. Raises ValidationError."""
    autocast = own.dtype == AUTOCAST
    return RunSpec.model_validate(
        {
            "name": "against-trl",
            "title": "One step, beside TRL's",
            "seed": setting.seed,
            "model": {
                "source": str(model),
                "dtype": "float32" if autocast else own.dtype,
                "mixed_precision": "bf16" if autocast else "no",
                "lora": {"r": LORA_R, "lora_alpha": LORA_ALPHA, "target_modules": TARGETS},
            },
            "task": {
                "name": "custom",
                "data": {"path": str(data)},
                "prompt": "{question}",
                "train_prompts": PROMPTS,
                "eval_prompts": 1,
                "rewards": [{"function": f"{Path(__file__).with_name('reward.py')}:variety"}],
            },
            "stages": {"grpo": _stage(setting, clipped_at)},
            "evaluation": {"eval_steps": AMPLE, "num_generations_eval": 1},
            "checkpoints": {"save_steps": AMPLE},
            "guards": {"collapse": "off"},  # of completions that are all cut off, as the fixed length has them
        }
    )


def _stage(setting: Setting, clipped_at: float) -> dict[str, Any]:
    """TRL's loss_type grpo and scale_rewards group; its KL with the ratio, which is its default."""
    return {
        "max_steps": AMPLE,
        "prompts_per_step": setting.groups,
        "num_generations": setting.size,
        "max_completion_length": setting.new_tokens,
        "learning_rate": RATE,
        "lr_scheduler_type": "constant",
        "max_grad_norm": clipped_at,
        "gradient_accumulation_steps": setting.micro_batches,
        "beta": setting.beta,
        "kl_estimator": "k3_ratio",
        "reduction": "sequence_mean",
    }


def _length(tokenizer: Any, text: str) -> int:
    chat = [{"role": "user", "content": text}]
    prompt = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    return len(tokenizer(prompt, add_special_tokens=False)["input_ids"])
