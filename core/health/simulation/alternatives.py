"""What a stage is put beside: other K at equal completions, other normalisers, with and without a filter."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from core.config import GrpoStage
from core.config.grpo_stage import DynamicSamplingSpec

SIZES = (2, 4, 8, 16, 32)
Kind = Literal["own", "size", "normaliser", "filter"]

NORMALISERS = {  # transform, baseline, scale_rewards
    "group z-score": ("none", "group", "group"),
    "mean only": ("none", "group", "none"),
    "leave one out": ("none", "leave_one_out", "none"),
    "batch std": ("none", "group", "batch"),
    "centred batch std": ("none", "group", "batch_centred"),
    "batch mean and std": ("none", "batch", "batch"),
    "group ranks": ("rank", "group", "group"),
}
_AXES = ("transform", "baseline", "scale_rewards")


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """A stage, what it is called, and the overrides of the stage's own settings that lead to it."""

    kind: Kind
    label: str
    stage: GrpoStage
    overrides: tuple[str, ...] = ()


def settings(stage: GrpoStage) -> Iterator[Setting]:
    """The stage's own setting first, then its alternatives."""
    how = stage.advantage
    mine = next((name for name, axes in NORMALISERS.items() if axes == tuple(getattr(how, x) for x in _AXES)), None)
    label = mine or f"{how.baseline} mean, {how.scale_rewards} std" + ", of ranks" * (how.transform == "rank")
    yield Setting(kind="own", label=label, stage=stage)
    for size in SIZES:
        if size != stage.num_generations:
            yield _sized(stage, size)
    for name, axes in NORMALISERS.items():
        if name != mine:
            changed = {key: value for key, value in zip(_AXES, axes, strict=True) if getattr(how, key) != value}
            yield Setting(
                kind="normaliser",
                label=name,
                stage=stage.model_copy(update={"advantage": how.model_copy(update=changed)}),
                overrides=tuple(f"advantage.{key}={value}" for key, value in changed.items()),
            )
    yield from _filtered(stage)


def _sized(stage: GrpoStage, size: int) -> Setting:
    """Another K, with as many prompts as make about the same number of completions."""
    prompts = max(1, round(stage.rows_per_step / size))
    return Setting(
        kind="size",
        label="",
        stage=stage.model_copy(update={"num_generations": size, "prompts_per_step": prompts}),
        overrides=(f"num_generations={size}", f"prompts_per_step={prompts}"),
    )


def _filtered(stage: GrpoStage) -> Iterator[Setting]:
    def without(**update: Any) -> GrpoStage:
        return stage.model_copy(update=update)

    if stage.dynamic_sampling is None:
        more = DynamicSamplingSpec()
        yield Setting(
            kind="filter",
            label="dynamic sampling",
            stage=without(dynamic_sampling=more),
            overrides=(f"dynamic_sampling.max_attempts={more.max_attempts}",),
        )
    else:
        plain = without(dynamic_sampling=None)
        yield Setting(kind="filter", label="no dynamic sampling", stage=plain, overrides=("dynamic_sampling=null",))
    if stage.positive_reward is not None:
        plain = without(positive_reward=None)
        yield Setting(kind="filter", label="no positive_reward", stage=plain, overrides=("positive_reward=null",))
