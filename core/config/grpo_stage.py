"""A GRPO stage: the axes of the method, and what is done around an update."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from core.algorithms.names import (
    TRANSFORMS,
    Baseline,
    CandidateChoice,
    KlEstimator,
    LossRows,
    OldPolicy,
    Reduction,
    RunningRule,
    Scale,
    SurrogateKind,
    Transform,
    Weighting,
    scopes,
)
from core.config.methods import AXES, METHODS, filled
from core.config.part import LATE, Count, Fraction, NonNegative, Part, Positive, PositiveInt, refusal, whole
from core.config.stage import GroupSource, PositiveSchedule, Schedule, StageBase, StopTexts, constant

Decay = Annotated[float, Field(gt=0, lt=1)]


class AdvantageSpec(Part):
    """Reward transform x baseline x scale: A = (transform(r) - baseline) / (max(std, std_floor) + eps); clipped."""

    transform: Transform = "none"
    baseline: Baseline = "group"
    scale_rewards: Scale = "group"
    ddof: Annotated[Literal[0, 1], BeforeValidator(whole)] = 1
    eps: Positive = 1e-4
    std_floor: NonNegative = 0.0
    clip: Positive | None = None
    virtual_best: Annotated[float, Field(ge=-1e6, le=1e6)] | None = (
        None  # NGRPO: the reward of one more sample, seen by the statistics only
    )
    weighting: Weighting = "rows"  # whether batch statistics count a completion once, or once per token
    running_decay: Decay = 0.9
    running_rule: Annotated[RunningRule, LATE] = "decay"  # count: document 003's, by the rewards so far
    running_after: Annotated[Count, LATE] = 0  # rewards of the stage that running statistics wait for

    @model_validator(mode="after")
    def _ranks_have_no_history(self) -> AdvantageSpec:
        if "history" in scopes(self) and not TRANSFORMS[self.transform].keeps_rewards:
            raise refusal(
                "transform", f"got {self.transform} with running statistics, which are of rewards; allowed: none"
            )
        return self


class AdaptiveBetaSpec(Part):
    """Moves beta with the measured KL, by `proportional` (arXiv 1909.08593) or `threshold` (the seed project)."""

    rule: Literal["proportional", "threshold"]
    target: Positive = 0.1  # proportional: the KL that is aimed at
    horizon: PositiveInt = 10000  # proportional: in completions
    high: Positive = 0.1  # threshold: above this KL beta grows by factor, below `low` it shrinks
    low: Positive = 0.01
    factor: Annotated[float, Field(gt=1)] = 1.5
    min_beta: Annotated[NonNegative, LATE] = 0.0
    max_beta: Annotated[Positive | None, LATE] = None


class AdaptiveEntropySpec(Part):
    """Moves entropy_coef by `delta` a step towards `target` nats, within [min, max]; acts only below the target."""

    target: Positive = 0.2
    delta: Positive = 0.005
    min: NonNegative = 0.0
    max: Positive = 1.0


class DynamicSamplingSpec(Part):
    """Replaces groups without signal by groups of further prompts, up to `max_attempts` samplings a step."""

    max_attempts: Annotated[int, Field(ge=2)] = 10


class OverlongSpec(Part):
    """Takes up to `weight` off the reward over the last `buffer` (a fraction) of max_completion_length."""

    buffer: Annotated[float, Field(gt=0, le=1)] = 0.2
    weight: Positive = 1.0


class GrpoStage(StageBase):
    """One step samples `num_generations` completions for each of `prompts_per_step` prompts and learns from them."""

    kind: Literal["grpo"] = "grpo"
    method: Literal[tuple(METHODS)] = "grpo"  # type: ignore[valid-type]
    num_generations: Annotated[int, Field(ge=2, le=1024)]
    temperature: PositiveSchedule = constant(1.0)
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    top_k: Count = 0
    min_p: Annotated[Fraction, LATE] = 0.0
    repetition_penalty: Annotated[Positive, LATE] = 1.0
    stop_strings: Annotated[StopTexts, LATE] = ()

    advantage: AdvantageSpec = AdvantageSpec()
    entropy_weighting: Literal["none", "token", "sequence"] = "none"
    entropy_share: Fraction = 0.5  # of the reward that is weighted by entropy
    surrogate: SurrogateKind = "clip"
    epsilon: PositiveSchedule = constant(0.2)
    epsilon_high: PositiveSchedule | None = None
    dual_clip: Annotated[float, Field(gt=1)] = 3.0
    cispo_max_weight: Positive = 5.0
    sapo_temperature_pos: Positive = 1.0
    sapo_temperature_neg: Positive = 1.05
    dppo_delta: Annotated[float, Field(gt=0, le=1)] = 0.2
    reduction: Reduction = "sequence_mean"

    beta: Schedule = constant(0.0)
    kl_estimator: KlEstimator = "k2"
    kl_in: Literal["loss", "reward"] = "loss"
    sync_ref_model: Annotated[bool, LATE] = False  # the reference follows the policy
    ref_model_mixup_alpha: Annotated[float, Field(gt=0, le=1), LATE] = 0.6  # reference <- alpha policy + (1 - alpha) it
    ref_model_sync_steps: Annotated[PositiveInt, LATE] = 512  # of the stage, from one such move to the next
    adaptive_beta: AdaptiveBetaSpec | None = None
    entropy_coef: Schedule = constant(0.0)
    adaptive_entropy: AdaptiveEntropySpec | None = None
    policy_weight: Schedule = constant(1.0)
    supervised_weight: Schedule = constant(0.0)
    consistency_weight: Schedule = constant(0.0)
    loss_rows: Annotated[LossRows, LATE] = "all"  # best: the policy's own losses are of each group's highest reward

    dynamic_sampling: DynamicSamplingSpec | None = None
    overlong: OverlongSpec | None = None
    mask_truncated_completions: bool = False
    positive_reward: Positive | None = None  # only prompts with a completion of at least this reward take part
    keep_candidates: PositiveSchedule | None = None  # only the best so many of each group take part
    candidate_choice: Annotated[CandidateChoice, LATE] = "best"  # which of a group keep_candidates keeps
    groups: Annotated[GroupSource, LATE] = "online"
    old_policy: Annotated[OldPolicy, LATE] = "sampler"
    num_iterations: PositiveInt = 1
    minibatches: PositiveInt = 1
    importance_sampling_cap: Positive | None = None
    skip_without_signal: bool = True

    @property
    def rows_per_step(self) -> int:
        """Completions sampled on a step, refills left out."""
        return 0 if self.groups == "offline" else self.num_generations * self.prompts_per_step

    @property
    def updates_per_rollout(self) -> int:
        """Optimiser steps that learn from one rollout."""
        return self.num_iterations * self.minibatches

    @model_validator(mode="before")
    @classmethod
    def _method_fills_axes(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        axes = filled(value)
        if axes.get("kl_in") == "reward":
            axes.setdefault("kl_estimator", "k1")  # the only one whose reward has the KL's gradient
        return axes

    @model_validator(mode="after")
    def _settings_agree(self) -> GrpoStage:
        if self.kl_in == "loss" and self.kl_estimator == "k1" and self.beta.ever:
            raise refusal(
                "kl_estimator",
                "got k1 in the loss, where its expected gradient is 0; allowed: k2, k1_ratio, k3_ratio, k3, "
                "or kl_in: reward",
            )
        if self.kl_in == "reward" and self.kl_estimator == "forward_k3":
            raise refusal("kl_estimator", "got forward_k3, which is for the loss; allowed in a reward: k1, k2, k3")
        if self.kl_in == "reward" and self.kl_estimator.endswith("_ratio"):
            name = self.kl_estimator.removesuffix("_ratio")
            raise refusal("kl_estimator", f"got {self.kl_estimator}; a reward has no gradient: write {name}")
        if self.minibatches > self.prompts_per_step:
            allowed = f"at most prompts_per_step = {self.prompts_per_step}: groups are not split"
            raise refusal("minibatches", f"got {self.minibatches}; allowed: {allowed}")
        if self.adaptive_beta is not None and not (self.beta.constant and self.beta.ever):
            raise refusal(
                "adaptive_beta", "needs a beta above 0 that is a plain number: it starts there and moves itself"
            )
        if self.adaptive_beta is not None and self.adaptive_beta.low >= self.adaptive_beta.high:
            raise refusal(
                "adaptive_beta.low", f"got {self.adaptive_beta.low}; allowed: below high = {self.adaptive_beta.high}"
            )
        if self.old_policy != "sampler" and self.importance_sampling_cap is not None:
            problem = f"got a cap and old_policy: {self.old_policy}; it corrects a sampler's log-probs; allowed: null"
            raise refusal("importance_sampling_cap", problem)
        rule = self.adaptive_beta
        if rule is not None and rule.max_beta is not None and rule.min_beta >= rule.max_beta:
            allowed = f"below max_beta = {rule.max_beta}"
            raise refusal("adaptive_beta.min_beta", f"got {rule.min_beta}; allowed: {allowed}")
        widest = max(self.epsilon.start, self.epsilon.end)
        if widest >= 1 and self.surrogate in ("clip", "dual_clip", "mean_ratio", "gspo", "product_ratio"):
            raise refusal("epsilon", f"got {widest}; allowed: a number > 0 and < 1")
        return self

    @model_validator(mode="after")
    def _a_moving_reference_is_read(self) -> GrpoStage:
        if self.sync_ref_model and not self.beta.ever and self.old_policy != "reference":
            raise refusal(
                "sync_ref_model",
                "got true, and nothing reads the reference; allowed: with beta above 0 or old_policy: reference",
            )
        return self

    @model_validator(mode="after")
    def _adaptive_entropy_has_room(self) -> GrpoStage:
        rule = self.adaptive_entropy
        if rule is not None and rule.min > rule.max:
            raise refusal("adaptive_entropy.min", f"got {rule.min}; allowed: at most max = {rule.max}")
        if rule is not None and not self.entropy_coef.constant:
            raise refusal(
                "adaptive_entropy", "needs an entropy_coef that is a plain number: it starts there and moves itself"
            )
        return self


def point(stage: GrpoStage) -> dict[str, Any]:
    """Where a stage stands on the axes of methods, and on what its method's row states besides: key -> value."""
    return stage.model_dump(include={*AXES, *METHODS[stage.method].axes})


def named_point(method: str) -> dict[str, Any]:
    """The point a method's name stands for, before anything is overridden."""
    plain = {"method": method, "max_steps": 1, "num_generations": 2, "prompts_per_step": 1, "learning_rate": 1.0}
    return point(GrpoStage.model_validate(plain))
