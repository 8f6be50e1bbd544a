"""What every stage of training has: how long, how fast, and when it ends; and numbers that move with its steps.

Names follow TRL's GRPOConfig. GRPO's own settings stand in grpo_stage.py.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from core.algorithms.names import OPTIMISERS, CandidateChoice, Optimiser
from core.algorithms.schedules import MovingShape, Shape
from core.config.part import LATE, Count, Name, NonNegative, Part, Positive, PositiveInt, refusal

EvalMetric = Literal["eval/reward", "eval/valid"]
StopTexts = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(strict=False)]
Beta = Annotated[float, Field(ge=0, lt=1)]
GroupSource = Literal["online", "offline"]  # sampled by the policy, or outputs that the task has stored, scored before


class PlateauSpec(Part):
    """Multiply a number by `factor` after `patience` of the stage's evaluations without `metric` getting better."""

    metric: EvalMetric = "eval/reward"
    patience: PositiveInt
    factor: Annotated[float, Field(gt=0, lt=1)] = 0.5
    min_delta: NonNegative = 0.0


class Schedule(Part):
    """From `start` (before the stage's first step) to `end` over `steps` steps, then flat; a plain number is constant.

    The shape `step` is `start` for the first `steps` steps and `end` from then on.

    `warmup` steps of a linear rise from 0 to `start` come first; the first step is not at 0. `plateau` takes a factor
    off whatever that gives, for every plateau so far.
    """

    start: NonNegative
    end: NonNegative
    steps: Count = 0
    shape: MovingShape = "linear"
    warmup: Count = 0
    plateau: PlateauSpec | None = None

    @model_validator(mode="before")
    @classmethod
    def _number_is_constant(cls, value: Any) -> Any:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return {"start": value, "end": value, "steps": 0}
        return value

    @model_validator(mode="after")
    def _exponential_needs_positive(self) -> Schedule:
        if self.shape == "exponential" and not (self.start > 0 and self.end > 0):
            raise refusal(
                "shape", "got exponential to or from 0; allowed: exponential between numbers > 0, else linear"
            )
        return self

    @model_validator(mode="after")
    def _moving_takes_steps(self) -> Schedule:
        if self.start != self.end and self.steps == 0:
            raise refusal("steps", "got 0 between two numbers; allowed: the steps from start to end, at least 1")
        return self

    @model_validator(mode="after")
    def _plateau_has_something_to_reduce(self) -> Schedule:
        if self.plateau is not None and not self.ever:
            raise refusal("plateau", "got a plateau of a number that is 0 throughout; allowed: null")
        return self

    @model_serializer(mode="wrap")
    def _constant_is_a_number(self, handler: SerializerFunctionWrapHandler) -> Any:
        return self.start if self.constant else handler(self)

    @property
    def constant(self) -> bool:
        """Whether it never moves."""
        return self.start == self.end and self.warmup == 0 and self.plateau is None

    @property
    def ever(self) -> bool:
        """Whether it is above 0 at any step."""
        return self.start > 0 or self.end > 0


def _positive(schedule: Schedule) -> Schedule:
    for key, value in (("start", schedule.start), ("end", schedule.end)):
        if value <= 0:
            raise refusal(key, f"got {value:g}; allowed: a number > 0")
    return schedule


PositiveSchedule = Annotated[Schedule, AfterValidator(_positive)]


def constant(value: float) -> Schedule:
    """The schedule that is always `value`."""
    return Schedule(start=value, end=value)


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
    optim: Annotated[Optimiser, LATE] = "adamw_torch"
    adam_beta1: Annotated[Beta, LATE] = 0.9
    adam_beta2: Annotated[Beta, LATE] = 0.999
    adam_epsilon: Annotated[Positive, LATE] = 1e-8
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
    def _optimiser_reads_its_settings(self) -> StageBase:
        traits = OPTIMISERS[self.optim]
        readers = {"adam_beta1": traits.betas, "adam_beta2": traits.betas, "adam_epsilon": traits.epsilon}
        for key, read in readers.items():
            default = type(self).model_fields[key].default
            if not read and getattr(self, key) != default:
                raise refusal(
                    key, f"got {getattr(self, key):g}, which {self.optim} does not read; allowed: {default:g}"
                )
        if self.weight_decay and not traits.decays:
            raise refusal("weight_decay", f"got {self.weight_decay:g}, and {self.optim} has none; allowed: 0")
        return self

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
    stop_strings: Annotated[StopTexts, LATE] = ()
    tau: PositiveSchedule = constant(1.0)
    keep_candidates: PositiveSchedule | None = None  # only the best so many of each group take part
    candidate_choice: Annotated[CandidateChoice, LATE] = "best"  # which of a group keep_candidates keeps
    groups: Annotated[GroupSource, LATE] = "online"
    positive_reward: Positive | None = None  # only prompts with a completion of at least this reward take part

    @property
    def rows_per_step(self) -> int:
        """Completions sampled on a step."""
        return 0 if self.groups == "offline" else self.num_generations * self.prompts_per_step


def steps_of_epochs(epochs: float, train_prompts: int, prompts_per_step: int) -> int:
    """The steps that so many passes over the prompts take, the last one begun counted whole."""
    return max(1, math.ceil(epochs * train_prompts / prompts_per_step))


def kind_of(stage: Any) -> str:
    """The kind a stage's mapping (or record) says, `grpo` where it says none."""
    kind = stage.get("kind", "grpo") if isinstance(stage, dict) else getattr(stage, "kind", "grpo")
    return str(kind)
