"""TRL's step: its own GRPOTrainer and its own `train()`, with the settings that are fastest here. Needs trl.

All rows in one batch where they fit, so no pass for old log-probs; no gradient checkpointing, nothing logged or saved.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.trl_step.reward import variety
from benchmarks.trl_step.setting import (
    AMPLE,
    CLIPPED_AT,
    LORA_ALPHA,
    LORA_R,
    RATE,
    TARGETS,
    Setting,
    Step,
)
from benchmarks.trl_step.watch import Watch
from core.models.messages import no_progress_bars


@dataclass(frozen=True, kw_only=True, slots=True)
class Precision:
    """The dtype that TRL loads the weights in, and its `bf16`."""

    weights: str
    bf16: bool


PRECISIONS = {
    "fp32": Precision(weights="float32", bf16=False),
    "bf16=True": Precision(weights="float32", bf16=True),
    "bf16 weights": Precision(weights="bfloat16", bf16=False),
    "bf16 weights, bf16=True": Precision(weights="bfloat16", bf16=True),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """What both tools start from: the model's folder, prompts in order, the adapter's weights (none: a fresh one)."""

    model: Path
    questions: Sequence[str]
    adapter: Mapping[str, Tensor]
    output: Path


class Theirs:
    """A GRPOTrainer; `between` is called after each of its steps and is not in their time."""

    def __init__(self, setting: Setting, precision: str, start: Start, *, steps: int = AMPLE) -> None:
        from datasets import Dataset, disable_progress_bars
        from peft import LoraConfig
        from transformers import PrinterCallback
        from trl import GRPOTrainer

        disable_progress_bars()
        self.setting = setting
        self._tokens = 0
        with no_progress_bars(), warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of names that transformers 5.23 gave up and trl still says
            self.trainer: Any = GRPOTrainer(
                str(start.model),
                self._reward,
                _config(setting, PRECISIONS[precision], start.output, steps),
                train_dataset=Dataset.from_list([{"prompt": conversation(text)} for text in start.questions]),
                peft_config=LoraConfig(
                    r=LORA_R, lora_alpha=LORA_ALPHA, lora_dropout=0.0, target_modules=list(TARGETS),
                    task_type="CAUSAL_LM",
                ),
            )  # fmt: skip
        self.trainer.remove_callback(PrinterCallback)
        if start.adapter:
            self.load(start.adapter)

    def load(self, adapter: Mapping[str, Tensor]) -> None:
        """Give the adapter these weights."""
        own = self.trained()
        assert set(own) == set(adapter), "the two tools name the adapter's weights alike"
        with torch.no_grad():
            for name, parameter in own.items():
                parameter.copy_(adapter[name])

    def trained(self) -> dict[str, Any]:
        """What its optimiser moves, by name."""
        return {name: one for name, one in self.trainer.model.named_parameters() if one.requires_grad}

    def train(self, between: Callable[[], None]) -> list[Step]:
        """The steps it was made for."""
        from transformers import TrainerCallback

        steps, setting = [], self.setting
        watch = Watch(cuda=setting.cuda)

        def on_train_begin(*_: Any, **__: Any) -> None:
            nonlocal watch
            torch.set_num_threads(setting.threads)
            self._tokens, watch = 0, Watch(cuda=setting.cuda)

        def on_step_end(*_: Any, **__: Any) -> None:
            seconds, cpu = watch.read()
            steps.append(Step(seconds=seconds, cpu=cpu, generated=self._tokens, trained=self._tokens, parts={}))
            between()
            on_train_begin()

        callback = TrainerCallback()
        callback.on_train_begin, callback.on_step_end = on_train_begin, on_step_end
        self.trainer.add_callback(callback)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            self.trainer.train()
        return steps

    def _reward(self, completions: list[Any], completion_ids: list[list[int]], **_: Any) -> list[float]:
        self._tokens += sum(len(ids) for ids in completion_ids)
        return variety(completions)

    _reward.__name__ = "variety"


def conversation(text: str) -> list[dict[str, str]]:
    """A prompt as TRL has those of a chat model."""
    return [{"role": "user", "content": text}]


def _config(setting: Setting, precision: Precision, output: Path, steps: int) -> Any:
    """Every setting that matters is said, whatever TRL's defaults become."""
    from trl import GRPOConfig

    return GRPOConfig(
        output_dir=str(output), seed=setting.seed, max_steps=steps, use_cpu=not setting.cuda, bf16=precision.bf16,
        model_init_kwargs={"dtype": precision.weights},
        per_device_train_batch_size=setting.rows // setting.micro_batches,
        gradient_accumulation_steps=setting.micro_batches, gradient_checkpointing=False,
        num_generations=setting.size, max_completion_length=setting.new_tokens,
        temperature=1.0, top_p=1.0, top_k=0, num_iterations=1, beta=setting.beta,
        generation_kwargs={"min_new_tokens": setting.new_tokens} if setting.fixed else None,
        loss_type="grpo", scale_rewards="group", epsilon=0.2,
        learning_rate=RATE, lr_scheduler_type="constant", weight_decay=0.0, max_grad_norm=CLIPPED_AT,
        adam_beta1=0.9, adam_beta2=0.999, adam_epsilon=1e-8,
        shuffle_dataset=False, dataloader_num_workers=0, report_to=[], log_completions=False, disable_tqdm=True,
        logging_steps=AMPLE, save_strategy="no",
    )  # fmt: skip


def frozen_batch(
    theirs: Theirs, prompts: Sequence[str], prompt_ids: list[list[int]], completion_ids: list[list[int]]
) -> tuple[float, dict[str, Tensor]]:
    """TRL's loss and gradient of these completions (N each): its rollout function hands them in, all else is its own.

    Raises ValueError where TRL reads the prompts as other tokens.
    """
    trainer = theirs.trainer
    rows = [{"prompt": conversation(text)} for text in prompts]
    read = trainer._tokenize_prompts([row["prompt"] for row in rows])[0]
    if [list(ids) for ids in read] != prompt_ids:
        raise ValueError("the two tools make different tokens of the same prompts")
    trainer.rollout_func = lambda *_: {"prompt_ids": prompt_ids, "completion_ids": completion_ids, "logprobs": None}
    trainer.model.train()
    inputs = trainer._generate_and_score_completions(rows)
    trainer.current_gradient_accumulation_steps = 1
    trainer.model.zero_grad()
    loss = trainer.compute_loss(trainer.model, inputs)
    loss.backward()
    return loss.item(), {name: one.grad.clone() for name, one in theirs.trained().items()}
