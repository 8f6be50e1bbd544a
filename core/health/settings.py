"""What is known of a run's configuration, whoever ran it: a spec knows all of it, an old log some."""

from __future__ import annotations

from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any

from core.algorithms.normalisers import BASELINES, SCALES, BaselineTraits, ScaleTraits
from core.config import GrpoStage, RunSpec


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
    optimizer: str | None = None  # adamw, sgd, ...: as the trainer calls it
    lr_scheduler_type: str | None = None
    warmup_steps: int | None = None
    max_grad_norm: float | None = None
    gradient_accumulation_steps: int | None = None
    beta: float | None = None
    kl_estimator: str | None = None
    kl_in: str | None = None
    transform: str | None = None
    ranks_break_ties: bool | None = None  # equal rewards get different ranks (a double argsort), not their mean rank
    baseline: str | None = None
    scale_rewards: str | None = None
    ddof: int | None = None
    eps: float | None = None
    std_floor: float | None = None
    advantage_clip: float | None = None
    weighting: str | None = None
    reshaped: bool | None = None  # more than a normaliser is between rewards and advantages: some are left out or added
    surrogate: str | None = None
    epsilon: float | None = None
    updates_per_rollout: int | None = None
    dynamic_sampling: bool | None = None
    overlong: bool | None = None  # a price is taken off the reward of long completions
    mask_truncated_completions: bool | None = None
    supervised_weight: float | None = None
    consistency_weight: float | None = None
    skip_without_signal: bool | None = None
    lora_dropout: float | None = None
    gradient_checkpointing: bool | None = None
    dtype: str | None = None
    offline: bool | None = None  # completions were drawn and scored in advance
    old_is_reference: bool | None = None  # the "old" log-probs are the reference's, for the whole run
    eval_completions: int | None = None  # behind one evaluation
    eval_prompts: int | None = None  # that they answer
    stage: int | None = None  # index of the stage that these settings are of; None where a log has no stages
    first_update_lr: float | None = None  # the rate of the first optimiser step, where the log or its code says it

    @property
    def baseline_traits(self) -> BaselineTraits | None:
        """What is true of `baseline`; None where that is unknown."""
        return next((traits for name, traits in BASELINES.items() if name == self.baseline), None)

    @property
    def scale_traits(self) -> ScaleTraits | None:
        """What is true of `scale_rewards`; None where that is unknown."""
        return next((traits for name, traits in SCALES.items() if name == self.scale_rewards), None)


OF_STAGE = {  # setting -> where a GRPO stage has it, where that is not a key of the same name
    "temperature": "temperature.start",
    "beta": "beta.start",
    "epsilon": "epsilon.start",
    "supervised_weight": "supervised_weight.start",
    "consistency_weight": "consistency_weight.start",
    "transform": "advantage.transform",
    "baseline": "advantage.baseline",
    "scale_rewards": "advantage.scale_rewards",
    "ddof": "advantage.ddof",
    "eps": "advantage.eps",
    "std_floor": "advantage.std_floor",
    "advantage_clip": "advantage.clip",
    "weighting": "advantage.weighting",
}


def settings_of(spec: RunSpec) -> Settings:
    """What a spec says. Only what does not depend on a GRPO stage is known where it has none."""
    stages = [(index, one) for index, one in enumerate(spec.stages.values()) if isinstance(one, GrpoStage)]
    known: dict[str, Any] = {
        "lora_dropout": spec.model.lora.lora_dropout if spec.model is not None and spec.model.lora else 0.0,
        "gradient_checkpointing": spec.model is not None and spec.model.gradient_checkpointing,
        "dtype": spec.computes_in,
        "optimizer": "adamw",  # core.training.update has no other
        "eval_prompts": spec.task.eval_prompts,
        "eval_completions": spec.task.eval_prompts * spec.evaluation.num_generations_eval,
    }
    if not stages:
        return Settings(**known)
    index, stage = stages[-1]
    known |= {name: attrgetter(path)(stage) for name, path in OF_STAGE.items()}
    known |= {field.name: getattr(stage, field.name) for field in fields(Settings) if _shared(stage, field.name, known)}
    known |= {"dynamic_sampling": stage.dynamic_sampling is not None, "overlong": stage.overlong is not None}
    known |= {"offline": False, "old_is_reference": False}
    return Settings(**known | {"ranks_break_ties": False, "reshaped": _reshaped(stage), "stage": index})


def _reshaped(stage: GrpoStage) -> bool:
    """Whether advantages are of other rewards than those of the step's completions, or of some of them only."""
    partial = (stage.advantage.virtual_best, stage.keep_candidates, stage.positive_reward, stage.overlong)
    return any(one is not None for one in partial) or (stage.kl_in == "reward" and stage.beta.ever)


def _shared(stage: GrpoStage, name: str, known: dict[str, Any]) -> bool:
    return name not in known and hasattr(stage, name)
