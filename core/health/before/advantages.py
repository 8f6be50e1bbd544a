"""The advantages that a stage's normaliser gives, their bounds, and how often a group has none, before any run.

Values are for rewards of 0 and 1, before entropy weights, which move credit inside a group. A bound is a formula of its
own for each normaliser: of one that has none here nothing is known, and the answer is None (for `smallest_std` 0). Dead
groups are those of independent rewards at one pass rate for all prompts: real prompts differ, and more are dead.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from statistics import fmean

from core.algorithms.names import BASELINES, SCALES, TRANSFORMS
from core.config import AdvantageSpec, GrpoStage
from core.health.before.view import Rewards, StageView


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
    from core.algorithms.advantages import whole

    return min(stage.num_generations, whole(stage.keep_candidates.start))


def most_kept(stage: GrpoStage) -> int:
    """The candidates of a group that take part at most, over the whole stage."""
    if stage.keep_candidates is None:
        return stage.num_generations
    from core.algorithms.advantages import whole

    return min(stage.num_generations, whole(max(stage.keep_candidates.start, stage.keep_candidates.end)))


def of_identical_groups(stage: GrpoStage, rewards: Sequence[float], counts: Sequence[int]) -> list[float]:
    """The advantage of each reward where every group of a step has so many completions with it, all of one length.

    `running` statistics are those of the first step: the batch's own. Of a transform that tells equal rewards apart by
    their place, the mean over the completions with a reward.
    """
    from core.algorithms.advantages import advantages

    groups = stage.prompts_per_step
    if TRANSFORMS[stage.advantage.transform].by_place:
        each = [reward for reward, count in zip(rewards, counts, strict=True) for _ in range(count)]
        lengths = [[stage.max_completion_length] * len(each)] * groups
        values = iter(advantages([each] * groups, stage.advantage, lengths_PC=lengths)[0].tolist())
        return [fmean([next(values) for _ in range(count)] or [0.0]) for count in counts]
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
    one completion differs from all others (Samuelson 1968); eps, a floor and the rewards' range take a little off. K
    are the candidates that take part at most.
    """
    assert view.grpo is not None
    stage = view.grpo
    size = most_kept(stage) + (stage.advantage.virtual_best is not None)
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


PASS_RATES = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)


@dataclass(frozen=True, kw_only=True, slots=True)
class DeadGroups:
    """Chances at one pass rate, of the first sampling; the last four with dynamic sampling, else None.

    Before shaping: an overlong penalty or a KL in the reward tells equal rewards apart.
    """

    pass_rate: float
    group: float  # a group is dead: p^K + (1 - p)^K, and more often where only its best candidates take part
    step: float | None  # all advantages of a step are 0; None where no formula is at hand
    attempts: float | None = None  # samplings of a step, expected
    samples: float | None = None  # completions sampled on a step, expected
    short: float | None = None  # a step still lacks live groups after max_attempts
    empty: float | None = None  # it has none at all


def dead_group(pass_rate: float, size: int, virtual_best: float | None = None, keep: int | None = None) -> float:
    """The chance that all rewards of a group are equal, the virtual one included.

    `keep`: of the best so many of the `size` completions. They are all right where at least so many are, and all wrong
    where every completion is.
    """
    all_right, all_wrong = _all_kept(pass_rate, size, size if keep is None else keep)
    if virtual_best is None:
        return all_right + all_wrong
    return (all_right if virtual_best == 1.0 else 0.0) + (all_wrong if virtual_best == 0.0 else 0.0)


def _all_kept(pass_rate: float, size: int, keep: int) -> tuple[float, float]:
    """(all right, all wrong): the chances of the best `keep` of `size` completions."""
    right = sum(
        comb(size, number) * pass_rate**number * (1.0 - pass_rate) ** (size - number)
        for number in range(keep, size + 1)
    )
    return right, (1.0 - pass_rate) ** size


def dead_groups_table(stage: GrpoStage, pass_rates: tuple[float, ...] = PASS_RATES) -> list[DeadGroups]:
    """A row for each pass rate."""
    return [_row(stage, pass_rate) for pass_rate in pass_rates]


def silent_step(stage: GrpoStage, pass_rate: float) -> float | None:
    """The chance that every advantage of a step is 0, so that there is nothing to learn.

    Where the baseline or the scale is the group's, that is up to each group. A batch's needs all N rewards equal, no
    baseline all of them 0; a running baseline is never met exactly. None where no formula is at hand.
    """
    how, size, groups = stage.advantage, stage.num_generations, stage.prompts_per_step
    right, wrong = _all_kept(pass_rate, size, kept(stage))
    baseline, scale = BASELINES[how.baseline], SCALES[how.scale_rewards]
    if baseline.scope == "group":
        chances = (
            comb(size, right) * pass_rate**right * (1 - pass_rate) ** (size - right) for right in range(size + 1)
        )
        silent = (not row.success and not row.failure for row in advantage_table(stage))
        return sum(chance for chance, zero in zip(chances, silent, strict=True) if zero) ** groups
    if how.virtual_best is not None or (scale.scope != "none" and not scale.standard):
        return None
    if scale.scope == "group" and how.std_floor == 0:
        return (right + wrong) ** groups
    if baseline.scope == "batch" or (scale.scope == "batch" and how.std_floor == 0):
        return right**groups + wrong**groups
    if baseline.scope == "history":
        return 0.0
    return wrong**groups if how.baseline == "none" else None


def _row(stage: GrpoStage, pass_rate: float) -> DeadGroups:
    groups, silent = stage.prompts_per_step, silent_step(stage, pass_rate)
    dead = dead_group(pass_rate, stage.num_generations, stage.advantage.virtual_best, kept(stage))
    if stage.dynamic_sampling is None:
        return DeadGroups(pass_rate=pass_rate, group=dead, step=silent)
    most = stage.dynamic_sampling.max_attempts
    # Each place of the batch is refilled by itself: after a attempts it is still empty with chance dead^a.
    attempts = sum(1.0 - (1.0 - dead**attempt) ** groups for attempt in range(most))
    sampled = sum(dead**attempt for attempt in range(most)) * groups
    return DeadGroups(
        pass_rate=pass_rate,
        group=dead,
        step=None if silent is None else min(silent, dead ** (most * groups)),  # only live groups are learned from
        attempts=attempts,
        samples=sampled * stage.num_generations,
        short=1.0 - (1.0 - dead**most) ** groups,
        empty=dead ** (most * groups),
    )
