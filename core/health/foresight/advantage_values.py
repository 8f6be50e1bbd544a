"""The advantages that a stage's normaliser gives to rewards of 0 and 1, and the largest it can give to any rewards.

Plain floats: core.algorithms.advantages does the same on tensors, and the tests hold the two together. Before entropy
weights, which move credit inside a group.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from core.health.foresight.view import Rewards, StageView
from core.spec import AdvantageSpec, GrpoStage

TOLERANCE = 1e-9


@dataclass(frozen=True, kw_only=True, slots=True)
class AdvantageRow:
    """Advantages in a group with so many successes; None where no completion is of that kind."""

    successes: int
    success: float | None
    failure: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Batch:
    """Values of one group of `groups` identical ones, and how often each counts in statistics of the batch."""

    values: Sequence[float]
    weights: Sequence[float]
    groups: int


def advantage_table(stage: GrpoStage) -> list[AdvantageRow]:
    """For 0 to K successes, reward 1 against 0: the advantage of each. Every group of the batch has as many.

    With keep_candidates, of those that are kept at the stage's start (None where none is): the others have 0.
    """
    table = []
    for successes in range(stage.num_generations + 1):
        rewards = ([1.0] * successes + [0.0] * (stage.num_generations - successes))[: kept(stage)]
        values = of_identical_groups(stage, rewards)
        table.append(
            AdvantageRow(
                successes=successes,
                success=values[0] if rewards[0] == 1.0 else None,
                failure=values[-1] if rewards[-1] == 0.0 else None,
            )
        )
    return table


def kept(stage: GrpoStage) -> int:
    """The candidates of a group that take part at the stage's start."""
    keep = stage.keep_candidates
    return stage.num_generations if keep is None else min(stage.num_generations, max(1, round(keep.start)))


def of_identical_groups(stage: GrpoStage, rewards: Sequence[float]) -> list[float]:
    """The advantages of one group where all of a step's groups have these rewards, and all completions one length.

    `running` statistics are those of the first step: the batch's own.
    """
    how, virtual = stage.advantage, stage.advantage.virtual_best
    members = [*rewards, *([] if virtual is None else [virtual])]
    tokens = how.weighting == "tokens"
    weights = [float(stage.max_completion_length if tokens else 1)] * len(rewards)
    weights += [] if virtual is None else [0.0 if tokens else 1.0]
    values = _centred_ranks(members) if how.transform == "rank" else members
    batch = _Batch(values=values, weights=weights, groups=stage.prompts_per_step)
    equal = len(members) < 2 or max(members) - min(members) <= TOLERANCE * max(1.0, *map(abs, members))
    if equal and how.baseline in ("group", "leave_one_out", "batch"):
        return [0.0] * len(rewards)
    centred = _centred(batch, how)
    if how.scale_rewards != "none":
        unit = max(0.0 if equal else _std(batch, centred, how), how.std_floor)
        centred = [value / (unit + how.eps) if unit > 0 else 0.0 for value in centred]
    if how.clip is not None:
        centred = [min(max(value, -how.clip), how.clip) for value in centred]
    return centred[: len(rewards)]


def largest(view: StageView) -> float | None:
    """No |advantage| of the stage is larger, before its clip; None where nothing bounds it.

    With a group's z-score: sqrt(K - 1) where ddof is 0, (K - 1) / sqrt(K) where it is 1, both met by the group in which
    one completion differs from all others (Samuelson 1968); eps, a floor and the rewards' range take a little off.
    """
    assert view.grpo is not None
    stage = view.grpo
    size = stage.num_generations + (stage.advantage.virtual_best is not None)
    most = _largest_deviation(stage, view.rewards, size)
    if stage.advantage.scale_rewards == "none":
        return most
    how, ratio = stage.advantage, _largest_in_stds(stage, size)
    if most is None or ratio is None:
        return ratio if most is None or how.std_floor == 0 else most / (how.std_floor + how.eps)
    return most / (max(most / ratio, how.std_floor) + how.eps)  # grows with the deviation: its largest is the worst


def largest_std(view: StageView) -> float | None:
    """No std that the stage divides by is larger; None where unknown (running statistics, unbounded rewards)."""
    assert view.grpo is not None
    stage, how = view.grpo, view.grpo.advantage
    span = _span(how, view.rewards, size := stage.num_generations + (how.virtual_best is not None))
    if span is None or how.scale_rewards in ("none", "running") or how.weighting == "tokens":
        return None
    if how.scale_rewards == "batch_centred":
        span *= 2.0 if how.baseline == "leave_one_out" else 1.0  # K / (K - 1) is at most 2
    members = size if how.scale_rewards == "group" else size * stage.prompts_per_step
    return span / 2 * math.sqrt(members / (members - how.ddof))


def smallest_std(view: StageView) -> float:
    """No std other than 0 is smaller, for a scale by group; 0 where rewards are a continuum."""
    assert view.grpo is not None
    stage, how = view.grpo, view.grpo.advantage
    size = 2 if how.transform == "rank" else stage.num_generations  # missing rewards leave as few as two ranks
    gap = size / 2 if how.transform == "rank" else view.rewards.smallest_gap
    if how.scale_rewards != "group" or how.virtual_best is not None:
        return 0.0
    return gap * math.sqrt((size - 1) / (size * (size - how.ddof)))  # one completion one gap from all others


def _largest_in_stds(stage: GrpoStage, size: int) -> float | None:
    """The largest deviation from the baseline in stds, without floor and eps; None where unbounded."""
    how = stage.advantage
    one_out = size / (size - 1) if how.baseline == "leave_one_out" else 1.0
    own = how.baseline in ("group", "leave_one_out")
    if how.scale_rewards == "running" or (how.weighting == "tokens" and how.scale_rewards != "group"):
        return None  # history, or a batch in which a short completion hardly counts
    if how.scale_rewards == "group":
        return one_out * math.sqrt(size - 1) * _sample_factor(size, how.ddof) if own else None
    everyone = size * stage.prompts_per_step
    if own:  # one completion differs in its group, and every other group adds no spread
        one_out = 1.0 if how.scale_rewards == "batch_centred" else one_out
        return one_out * math.sqrt(everyone * (size - 1) / size) * _sample_factor(everyone, how.ddof)
    return math.sqrt(everyone - 1) * _sample_factor(everyone, how.ddof) if how.baseline == "batch" else None


def _sample_factor(members: int, ddof: int) -> float:
    return math.sqrt((members - ddof) / members)


def _span(how: AdvantageSpec, rewards: Rewards, size: int) -> float | None:
    """Largest minus smallest value after the transform."""
    if how.transform == "rank":
        return float(size - 1)
    if rewards.low is None or rewards.high is None:
        return None
    virtual = [] if how.virtual_best is None else [how.virtual_best]
    return max(rewards.high, *virtual) - min(rewards.low, *virtual) if virtual else rewards.high - rewards.low


def _largest_deviation(stage: GrpoStage, rewards: Rewards, size: int) -> float | None:
    """The largest |value - baseline|."""
    how = stage.advantage
    span, everyone = _span(how, rewards, size), size * stage.prompts_per_step
    if span is None:
        return None
    if how.transform == "rank" and (how.baseline != "batch" or how.weighting == "rows"):
        return span / 2 * (size / (size - 1) if how.baseline == "leave_one_out" else 1.0)  # ranks have mean 0
    if how.baseline == "none":
        return max(abs(rewards.low or 0.0), abs(rewards.high or 0.0))
    if how.baseline == "group":
        return span * (size - 1) / size
    return span * (everyone - 1) / everyone if how.baseline == "batch" and how.weighting == "rows" else span


def _centred_ranks(members: Sequence[float]) -> list[float]:
    """(members below - members above) / 2, ties within the tolerance: rank - (n + 1) / 2."""
    slack = TOLERANCE * max(1.0, *map(abs, members))
    return [sum((one - other > slack) - (other - one > slack) for other in members) / 2 for one in members]


def _centred(batch: _Batch, how: AdvantageSpec) -> list[float]:
    values = batch.values
    if how.baseline == "none":
        return list(values)
    if how.baseline == "batch":
        mean = sum(v * w for v, w in zip(values, batch.weights, strict=True)) / sum(batch.weights)
        return [value - mean for value in values]
    mean, n = fmean(values), len(values)
    factor = n / (n - 1) if how.baseline == "leave_one_out" else 1.0
    return [(value - mean) * factor for value in values]


def _std(batch: _Batch, centred: Sequence[float], how: AdvantageSpec) -> float:
    """The std that the scale names, over as many equal groups."""
    if how.scale_rewards in ("group", "running"):
        ddof, groups, weights = (how.ddof if how.scale_rewards == "group" else 0), 1, [1.0] * len(batch.values)
    else:
        ddof, groups, weights = how.ddof, batch.groups, list(batch.weights)
    values = centred if how.scale_rewards == "batch_centred" else batch.values
    counted = [value for value, weight in zip(values, weights, strict=True) if weight > 0]
    if max(counted) - min(counted) <= TOLERANCE:  # a virtual member draws no token: the others may be equal without it
        return 0.0
    total = sum(weights)
    mean = sum(v * w for v, w in zip(values, weights, strict=True)) / total
    squares = sum((v - mean) ** 2 * w for v, w in zip(values, weights, strict=True))
    return math.sqrt(groups * squares / (groups * total - ddof))
