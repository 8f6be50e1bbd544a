"""What is known of a run's configuration, whoever ran it: a spec knows all of it, an old log some."""

from __future__ import annotations

from dataclasses import dataclass

from core.spec import GrpoStage, RunSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """The settings that rules read; None where unknown. Names and meanings are the spec's (docs/specs.md).

    Of a run with several stages: those of its last GRPO stage. Schedules are given by where they start.
    """

    num_generations: int | None = None
    prompts_per_step: int | None = None
    max_steps: int | None = None
    max_completion_length: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    learning_rate: float | None = None
    lr_scheduler_type: str | None = None
    warmup_steps: int | None = None
    max_grad_norm: float | None = None
    gradient_accumulation_steps: int | None = None
    beta: float | None = None
    kl_estimator: str | None = None
    kl_in: str | None = None
    transform: str | None = None
    baseline: str | None = None
    scale_rewards: str | None = None
    ddof: int | None = None
    eps: float | None = None
    std_floor: float | None = None
    advantage_clip: float | None = None
    surrogate: str | None = None
    epsilon: float | None = None
    updates_per_rollout: int | None = None
    dynamic_sampling: bool | None = None
    supervised_weight: float | None = None
    consistency_weight: float | None = None
    skip_without_signal: bool | None = None
    lora_dropout: float | None = None
    gradient_checkpointing: bool | None = None
    dtype: str | None = None
    offline: bool | None = None  # completions were drawn and scored in advance
    old_is_reference: bool | None = None  # the "old" log-probs are the reference's, for the whole run
    eval_completions: int | None = None  # behind one evaluation
    first_update_lr: float | None = None  # the rate of the first optimiser step, where the log or its code says it


def settings_of(spec: RunSpec) -> Settings:
    """What a spec says. Only what does not depend on a GRPO stage is known where it has none."""
    stages = [stage for stage in spec.stages.values() if isinstance(stage, GrpoStage)]
    dropout = spec.model.lora.lora_dropout if spec.model.lora else 0.0
    common = {
        "lora_dropout": dropout,
        "gradient_checkpointing": spec.model.gradient_checkpointing,
        "dtype": spec.model.computes_in,
        "eval_completions": spec.task.eval_prompts * spec.evaluation.num_generations_eval,
    }
    if not stages:
        return Settings(**common)  # type: ignore[arg-type]
    stage = stages[-1]
    how = stage.advantage
    return Settings(
        **common,  # type: ignore[arg-type]
        num_generations=stage.num_generations,
        prompts_per_step=stage.prompts_per_step,
        max_steps=stage.max_steps,
        max_completion_length=stage.max_completion_length,
        temperature=stage.temperature.start,
        top_p=stage.top_p,
        top_k=stage.top_k,
        learning_rate=stage.learning_rate,
        lr_scheduler_type=stage.lr_scheduler_type,
        warmup_steps=stage.warmup_steps,
        max_grad_norm=stage.max_grad_norm,
        gradient_accumulation_steps=stage.gradient_accumulation_steps,
        beta=stage.beta.start,
        kl_estimator=stage.kl_estimator,
        kl_in=stage.kl_in,
        transform=how.transform,
        baseline=how.baseline,
        scale_rewards=how.scale_rewards,
        ddof=how.ddof,
        eps=how.eps,
        std_floor=how.std_floor,
        advantage_clip=how.clip,
        surrogate=stage.surrogate,
        epsilon=stage.epsilon.start,
        updates_per_rollout=stage.updates_per_rollout,
        dynamic_sampling=stage.dynamic_sampling is not None,
        supervised_weight=stage.supervised_weight.start,
        consistency_weight=stage.consistency_weight.start,
        skip_without_signal=stage.skip_without_signal,
        offline=False,
        old_is_reference=False,
    )
