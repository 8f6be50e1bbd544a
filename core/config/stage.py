"""What every stage of training has: how long, how fast, and when it ends. Names follow TRL's GRPOConfig."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from core.algorithms.schedules import Shape
from core.config.part import LATE, Count, Name, NonNegative, Part, Positive, PositiveInt, refusal
from core.config.schedule import EvalMetric, PlateauSpec, PositiveSchedule, Schedule, constant


class EarlyStoppingSpec(Part):
    """Stop after `patience` evaluations without `metric` getting better by more than `min_delta`."""

    metric: EvalMetric = "eval/reward"
    patience: PositiveInt
    min_delta: NonNegative = 0.0


class StageBase(Part):
    """The settings that stages of every kind share."""

    max_steps: PositiveInt  # left out where `epochs` says how long
    epochs: Positive | None = None  # passes over the task's train_prompts
    prompts_per_step: PositiveInt
    max_completion_length: PositiveInt = 256
    learning_rate: NonNegative  # 0 moves nothing: a control for what the stage itself gains
    lr_scheduler_type: Shape = "cosine"
    lr_scheduler_steps: PositiveInt | None = None
    lr_clock: Literal["steps", "updates"] = "steps"
    lr_plateau: PlateauSpec | None = None
    warmup_steps: Count = 0
    weight_decay: NonNegative = 0.0
    max_grad_norm: Positive = 1.0
    gradient_accumulation_steps: PositiveInt = 1
    loss_weights: Annotated[dict[Name, Schedule], LATE] = Field(default_factory=dict)  # of the policy's own losses
    early_stopping: EarlyStoppingSpec | None = None  # ends the stage, not the run

    @property
    def lr_horizon(self) -> int:
        """The number of ticks of `lr_clock` over which the learning rate is planned."""
        return self.lr_scheduler_steps if self.lr_scheduler_steps is not None else self.max_steps

    @property
    def rows_per_step(self) -> int:
        """Completions sampled on a step."""
        return 0

    @model_validator(mode="after")
    def _warmup_ends(self) -> StageBase:
        if self.warmup_steps > self.lr_horizon:
            origin = "lr_scheduler_steps" if self.lr_scheduler_steps is not None else "max_steps"
            raise refusal(
                "warmup_steps",
                f"got {self.warmup_steps}; allowed: at most the learning rate's horizon, {origin} = {self.lr_horizon}",
            )
        return self


class SftStage(StageBase):
    """Supervised: each step learns from `prompts_per_step` of the task's own answers, by cross-entropy."""

    kind: Literal["sft"]


class RceStage(StageBase):
    """Reward-weighted cross-entropy: each step imitates a sampled group with softmax(reward / tau)."""

    kind: Literal["rce"]
    num_generations: Annotated[int, Field(ge=2, le=1024)]
    temperature: PositiveSchedule = constant(1.0)
    tau: PositiveSchedule = constant(1.0)
    keep_candidates: PositiveSchedule | None = None  # only the best so many of each group take part
    positive_reward: Positive | None = None  # only prompts with a completion of at least this reward take part

    @property
    def rows_per_step(self) -> int:
        """Completions sampled on a step."""
        return self.num_generations * self.prompts_per_step


def steps_of_epochs(epochs: float, train_prompts: int, prompts_per_step: int) -> int:
    """The steps that so many passes over the prompts take, the last one begun counted whole."""
    return max(1, math.ceil(epochs * train_prompts / prompts_per_step))


def kind_of(stage: Any) -> str:
    """The kind a stage's mapping (or record) says, `grpo` where it says none."""
    kind = stage.get("kind", "grpo") if isinstance(stage, dict) else getattr(stage, "kind", "grpo")
    return str(kind)
