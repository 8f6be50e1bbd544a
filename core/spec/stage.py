"""One stage of training. A plain GRPO run has one, called `grpo`; names follow TRL's GRPOConfig."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from core.spec.part import Count, NonNegative, Part, Positive, PositiveInt, refusal, whole
from core.spec.schedule import Schedule


class AdvantageSpec(Part):
    """A_i = r_i - mean(group), divided by std(group, ddof) + eps where scale_rewards is `group`."""

    scale_rewards: Literal["group", "none"] = "group"
    ddof: Annotated[Literal[0, 1], BeforeValidator(whole)] = 1
    eps: Positive = 1e-4


class GrpoStage(Part):
    """One step samples `num_generations` completions for each of `prompts_per_step` prompts and learns from them."""

    kind: Literal["grpo"] = "grpo"
    max_steps: PositiveInt
    num_generations: Annotated[int, Field(ge=2)]
    prompts_per_step: PositiveInt
    max_completion_length: PositiveInt = 256
    temperature: Schedule = Schedule(start=1.0, end=1.0)
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    top_k: Count = 0
    learning_rate: Positive
    lr_scheduler_type: Literal["constant", "cosine"] = "cosine"
    lr_scheduler_steps: PositiveInt | None = None
    lr_clock: Literal["steps", "updates"] = "steps"
    warmup_steps: Count = 0
    weight_decay: NonNegative = 0.0
    max_grad_norm: Positive = 1.0
    gradient_accumulation_steps: PositiveInt = 1
    beta: NonNegative = 0.0
    kl_estimator: Literal["k2", "k3"] = "k2"
    epsilon: Annotated[float, Field(gt=0, lt=1)] = 0.2
    epsilon_high: Positive | None = None
    reduction: Literal["sequence_mean", "token_mean"] = "token_mean"
    advantage: AdvantageSpec = AdvantageSpec()
    skip_without_signal: bool = True

    @property
    def lr_horizon(self) -> int:
        """The number of ticks of `lr_clock` over which the learning rate is planned."""
        return self.lr_scheduler_steps if self.lr_scheduler_steps is not None else self.max_steps

    @model_validator(mode="after")
    def _warmup_ends(self) -> GrpoStage:
        if self.warmup_steps > self.lr_horizon:
            origin = "lr_scheduler_steps" if self.lr_scheduler_steps is not None else "max_steps"
            raise refusal(
                "warmup_steps",
                f"got {self.warmup_steps}; allowed: at most the learning rate's horizon, {origin} = {self.lr_horizon}",
            )
        return self
