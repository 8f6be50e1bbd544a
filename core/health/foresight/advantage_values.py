"""The advantages that a stage's normaliser gives to rewards of 0 and 1, and the largest it can give to any rewards.

Before entropy weights, which move credit inside a group. A bound is a formula of its own for each normaliser: of one
that has none here nothing is known, and the answer is None (for `smallest_std` 0).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from core.algorithms.normalisers import SCALES, TRANSFORMS
from core.config import AdvantageSpec, GrpoStage
from core.health.foresight.view import Rewards, StageView


@dataclass(frozen=True, kw_only=True, slots=True)
class AdvantageRow:
    """Advantages in a group with so many successes; None where no completion is of that kind."""

    successes: int
    success: float | None
    failure: float | None


def advantage_table(stage: GrpoStage) -> list[AdvantageRow]:
    """For 0 to K successes, reward 1 against 0: the advantage of each. Every group of the batch has as many.

    With keep_candidates, of those that are kept at the stage's start (None where none is): the others have 0.
    """
    table = []
    for successes in range(stage.num_generations + 1):
        right = min(successes, kept(stage))
        wrong = kept(stage) - right
        success, failure = of_identical_groups(stage, (1.0, 0.0), (right, wrong))
        table.append(
            AdvantageRow(successes=successes, success=success if right else None, failure=failure if wrong else None)
        )
    return table


def kept(stage: GrpoStage) -> int:
    """The candidates of a group that take part at the stage's start."""
    if stage.keep_candidates is None:
        return stage.num_generations
    from core.algorithms.candidates import whole

    return min(stage.num_generations, whole(stage.keep_candidates.start))


def of_identical_groups(stage: GrpoStage, rewards: Sequence[float], counts: Sequence[int]) -> list[float]:
    """The advantage of each reward where every group of a step has so many completions with it, all of one length.

    `running` statistics are those of the first step: the batch's own.
    """
    from core.algorithms.advantages import advantages

    groups = stage.prompts_per_step
    table: list[list[float]] = advantages(
        [rewards] * groups,
        stage.advantage,
        counts_PC=[counts] * groups,
        lengths_PC=stage.max_completion_length,
    ).tolist()
    return table[0]


def largest(view: StageView) -> float | None:
    """No |advantage| of the stage is larger, before its clip; None where nothing bounds it.

    With a group's z-score: sqrt(K - 1) where ddof is 0, (K - 1) / sqrt(K) where it is 1, both met by the group in which
    one completion differs from all others (Samuelson 1968); eps, a floor and the rewards' range take a little off.
    """
    assert view.grpo is not None
    stage = view.grpo
    size = stage.num_generations + (stage.advantage.virtual_best is not None)
    most = _largest_deviation(stage, view.rewards, size)
    if SCALES[stage.advantage.scale_rewards].scope == "none":
        return most
    how, ratio = stage.advantage, _largest_in_stds(stage, size)
    if most is None or ratio is None:
        return ratio if most is None or how.std_floor == 0 else most / (how.std_floor + how.eps)
    return most / (max(most / ratio, how.std_floor) + how.eps)  # grows with the deviation: its largest is the worst


def largest_std(view: StageView) -> float | None:
    """No std that the stage divides by is larger; None where unknown (running statistics, unbounded rewards)."""
    assert view.grpo is not None
    stage, how = view.grpo, view.grpo.advantage
    scale, size = SCALES[how.scale_rewards], stage.num_generations + (how.virtual_best is not None)
    span = _span(how, view.rewards, size)
    if span is None or not scale.standard or scale.scope == "history" or how.weighting == "tokens":
        return None
    if scale.centred:
        match how.baseline:
            case "leave_one_out":
                span *= 2.0  # K / (K - 1) is at most 2
            case "group" | "batch" | "running" | "none":
                pass
            case _:  # of a new one nothing is known
                return None
    members = size if scale.scope == "group" else size * stage.prompts_per_step
    return span / 2 * math.sqrt(members / (members - how.ddof))


def smallest_std(view: StageView) -> float:
    """No std other than 0 is smaller, for a scale by group; 0 where rewards are a continuum, and where unknown."""
    assert view.grpo is not None
    stage, how = view.grpo, view.grpo.advantage
    scale = SCALES[how.scale_rewards]
    if scale.scope != "group" or not scale.standard or how.virtual_best is not None:
        return 0.0
    match how.transform:
        case "rank":
            size, gap = 2, 1.0  # missing rewards leave as few as two ranks
        case "none":
            size, gap = stage.num_generations, view.rewards.smallest_gap
        case _:  # of a new one nothing is known
            return 0.0
    return gap * math.sqrt((size - 1) / (size * (size - how.ddof)))  # one completion one gap from all others


def _largest_in_stds(stage: GrpoStage, size: int) -> float | None:
    """The largest deviation from the baseline in stds, without floor and eps; None where unbounded or unknown."""
    how, scale = stage.advantage, SCALES[stage.advantage.scale_rewards]
    if not scale.standard or scale.scope == "history" or (how.weighting == "tokens" and scale.scope != "group"):
        return None  # another kind of divisor, history, or a batch in which a short completion hardly counts
    everyone = size * stage.prompts_per_step
    match how.baseline:
        case "group" | "leave_one_out":
            one_out = size / (size - 1) if how.baseline == "leave_one_out" else 1.0
            if scale.scope == "group":
                return one_out * math.sqrt(size - 1) * _sample_factor(size, how.ddof)
            one_out = 1.0 if scale.centred else one_out
            # One completion differs in its group, and every other group adds no spread.
            return one_out * math.sqrt(everyone * (size - 1) / size) * _sample_factor(everyone, how.ddof)
        case "batch":
            return None if scale.scope == "group" else math.sqrt(everyone - 1) * _sample_factor(everyone, how.ddof)
        case _:  # nothing bounds it under the others; of a new one nothing is known
            return None


def _sample_factor(members: int, ddof: int) -> float:
    return math.sqrt((members - ddof) / members)


def _span(how: AdvantageSpec, rewards: Rewards, size: int) -> float | None:
    """Largest minus smallest value after the transform; None where unbounded or unknown."""
    if not TRANSFORMS[how.transform].keeps_rewards:
        return float(size - 1) if how.transform == "rank" else None
    if rewards.low is None or rewards.high is None:
        return None
    virtual = [] if how.virtual_best is None else [how.virtual_best]
    return max(rewards.high, *virtual) - min(rewards.low, *virtual) if virtual else rewards.high - rewards.low


def _largest_deviation(stage: GrpoStage, rewards: Rewards, size: int) -> float | None:
    """The largest |value - baseline|; None where unbounded or unknown."""
    how, everyone = stage.advantage, size * stage.prompts_per_step
    if (span := _span(how, rewards, size)) is None:
        return None
    most: float | None
    match how.baseline:
        case "none":
            most = max(abs(rewards.low or 0.0), abs(rewards.high or 0.0))
        case "group":
            most = span * (size - 1) / size
        case "batch":
            most = span * (everyone - 1) / everyone if how.weighting == "rows" else span
        case "leave_one_out" | "running":
            most = span
        case _:  # of a new one nothing is known
            most = None
    if how.transform == "rank" and most is not None and (how.baseline != "batch" or how.weighting == "rows"):
        return span / 2 * (size / (size - 1) if how.baseline == "leave_one_out" else 1.0)  # ranks have mean 0
    return most
