"""A stage's own setting beside its alternatives, in numbers that no learning rate changes, and one sentence on them.

Alternatives are other K at equal completions, other normalisers, with and without a filter.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from core.config import GrpoStage
from core.config.grpo_stage import DynamicSamplingSpec
from core.health.simulation.rewards import RewardModel
from core.health.simulation.signal import Bandit, Signal, signal_of

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


PASS_RATES = (0.1, 0.3, 0.5, 0.7, 0.9)  # where nothing is known
MORE = 0.005  # of a worth: less is no difference in the two places that are shown
HALF = 1.96  # standard errors of half a 95 % interval: there are hundreds of draws
LIMITS = (
    "a bandit, not a language model: one answer per completion, completions independent and equally long",
    "one update from fresh samples at fixed weights: no clip, KL, entropy term or momentum, and nothing on how large a "
    "learning rate holds",
    "the length of a gradient is a learning rate: settings are compared by direction only",
    "prompts are drawn at random; where each comes up once in every pass, their part of the noise averages out",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Worth:
    """How many completions of the own setting one of another is worth, for equal signal to noise; None: not defined.

    answers, prompts: where all noise is that of answers that earn the same, and where none is. se: of `value`.
    """

    value: float | None
    se: float
    answers: float | None
    prompts: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One setting."""

    kind: Kind
    label: str
    overrides: tuple[str, ...]
    signal: Signal
    worth: Worth


@dataclass(frozen=True, kw_only=True, slots=True)
class Simulation:
    """All settings, the own one first."""

    bandit: Bandit
    rewards: RewardModel
    rows: tuple[Row, ...]
    conclusion: str

    @property
    def own(self) -> Row:
        """The stage as it stands."""
        return self.rows[0]

    def as_json(self) -> dict[str, Any]:
        """The JSON object."""
        return {
            "rewards": {
                "source": self.rewards.source,
                "levels": list(self.rewards.levels),
                "prompts": len(self.rewards.prompts),
                "mean": self.rewards.mean,
                "std": self.rewards.std,
                "notes": list(self.rewards.notes),
            },
            "bandit": asdict(self.bandit),
            "settings": [
                {
                    "kind": row.kind,
                    "label": row.label,
                    "overrides": list(row.overrides),
                    **row.signal.as_json(),
                    "worth": asdict(row.worth),
                }
                for row in self.rows
            ],
            "conclusion": self.conclusion,
            "limits": list(LIMITS),
        }


def simulate(stage: GrpoStage, rewards: RewardModel, *, bandit: Bandit | None = None, seed: int = 0) -> Simulation:
    """The stage and its alternatives where completions earn so. The same seed gives the same numbers."""
    model = bandit or Bandit()
    every = list(settings(stage))
    own = signal_of(every[0].stage, rewards, model, seed=seed)
    rows = [_row(every[0], own, own)]
    rows += [_row(setting, signal_of(setting.stage, rewards, model, seed=seed), own) for setting in every[1:]]
    return Simulation(bandit=model, rewards=rewards, rows=tuple(rows), conclusion=_conclusion(rows))


def _row(setting: Setting, signal: Signal, own: Signal) -> Row:
    value = _ratio(signal.per_1000, own.per_1000)
    value = None if value is None else value * abs(value)
    drawn = () if signal is own else (signal, own)
    relative = [estimate.se / estimate.per_1000 for estimate in drawn if estimate.per_1000]
    return Row(
        kind=setting.kind,
        label=setting.label,
        overrides=setting.overrides,
        signal=signal,
        worth=Worth(
            value=value,
            se=0.0 if value is None else 2.0 * abs(value) * math.sqrt(sum(part * part for part in relative)),
            answers=_ratio(signal.answers, own.answers),
            prompts=_ratio(signal.prompts, own.prompts),
        ),
    )


def _ratio(numerator: float, denominator: float) -> float | None:
    return numerator / denominator if denominator > 0 else None


def _conclusion(rows: Sequence[Row]) -> str:
    """One sentence: the own K against 8 (or 2), the best of the others, and what dynamic sampling adds."""
    own = rows[0]
    if own.worth.value is None:
        return (
            f"Nothing to learn: {100 * own.signal.dead:.1f} % of groups are dead and the expected gradient is 0, or "
            f"against the rewards"
        )
    k = own.signal.num_generations
    sizes = [row for row in rows if row.kind == "size"]
    other = next(row for row in sizes if row.signal.num_generations == (8 if k != 8 else 2))
    parts = [
        f"at equal completions one of K={other.signal.num_generations} is worth {worth_text(other.worth)} of K={k} "
        f"(SNR per 1,000 completions {per(other.signal)} against {per(own.signal)}; dead groups "
        f"{100 * other.signal.dead:.1f} % against {100 * own.signal.dead:.1f} %)"
    ]
    normalisers = [row for row in rows if row.kind == "normaliser" and row.worth.value is not None]
    if normalisers:
        parts.append(_best(max(normalisers, key=lambda row: row.worth.value or 0.0)))
    for row in rows:
        if row.kind == "filter" and "dynamic" in row.label:
            completions = f"{row.signal.completions:.1f} completions a step against {own.signal.completions:.1f}"
            parts.append(f"{row.label} {worth_text(row.worth)} ({completions})")
    drawn = any(row.signal.groups for row in rows)
    text = "; ".join(parts)
    return text[0].upper() + text[1:] + (" (±: 95 % interval over the draws)" if drawn else " (all exact)")


def _best(row: Row) -> str:
    """What the most worthy of the other normalisers is worth; that none is worth more, where the own one is as good."""
    more = (row.worth.value or 0.0) - 1.0
    if more >= MORE and more > row.worth.se:
        return f"of the normalisers {row.label} is worth most, {worth_text(row.worth)}"
    return f"no other normaliser is worth more ({row.label} {worth_text(row.worth)})"


def worth_text(worth: Worth) -> str:
    """A worth with its 95 % interval where it was drawn."""
    if worth.value is None:
        return "-"
    return f"{worth.value:.2f}" + (f" ± {max(HALF * worth.se, 0.01):.2f}" if worth.se else "")


def per(signal: Signal) -> str:
    """The signal to noise of a thousand completions, with its 95 % interval where it was drawn."""
    return f"{signal.per_1000:.2f}" + (f" ± {HALF * signal.se:.2f}" if signal.groups else "")
