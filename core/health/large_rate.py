"""A rate that replaces the weights: what Adam moves in one update, by arithmetic, and what became of the policy then.

The arithmetic, for Adam and for LoRA, and its limits stand in core.health.learning_rate. Not here: curves alone
(first_updates).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from core.health.case import Case
from core.health.finding import Row
from core.health.first_updates import (
    CLEAR,
    COLUMNS,
    LASTS,
    LEAST,
    NEAR,
    Column,
    Left,
    least_fall,
    reward_rose,
    stage_of,
    values_of,
)
from core.health.onset import number

WEIGHT = 0.02  # what a transformer's weights begin with: their std
LARGE = WEIGHT / 2  # a rate: moves half of a weight in an update; LoRA has 1e-4 to 2e-3, full weights 1e-6 to 1e-5
PROMPTS = 4  # before the change: of fewer it may have been luck that they were answered well
MOST = LEAST - 1  # of the first LEAST rows after such an update: the policy is another one at once


@dataclass(frozen=True, kw_only=True, slots=True)
class Struck:
    """A rate of LARGE or more, and what left the start with the first updates at it, and for good."""

    rate: float
    updates: int  # that had acted by then
    left: tuple[Left, ...]
    worse: bool  # completions are worth less, or no longer end


def struck(case: Case) -> Struck | None:
    """What such a rate did at once; None where there was none, where it was no Adam, or nothing left its start.

    None too where the reward rose by more than a little, where a KL measured since is next to nothing, and where fewer
    than PROMPTS prompts are known to have been answered before.
    """
    if case.averaged_over > 1 or (case.settings.optimizer or "adam").startswith("sgd"):
        return None
    stage = stage_of(case)
    prompts = _prompts(case, stage.rows[0]) if stage.rows else 0
    large = ((place, _rate(case, stage.rows[place - 1])) for place in stage.places)
    place, rate = next(((at, rate) for at, rate in large if rate >= LARGE and at * prompts >= PROMPTS), (0, 0.0))
    left = _left(stage.rows[:place], stage.rows[place:]) if place else ()
    if not left:
        return None
    worse = any(one.kind == "harm" or one.metric == "completions/truncated" for one in left)
    return Struck(rate=rate, updates=stage.counts[place], left=left, worse=worse)


def _rate(case: Case, row: Row) -> float:
    """The rate of a row's update: its own, else the settings' where no warm-up is between."""
    own = number(row, "learning_rate")
    known = case.settings.learning_rate if not case.settings.warmup_steps else None
    return own if own is not None else known or 0.0


def _prompts(case: Case, row: Row) -> int:
    """The prompts of a step: as the settings say, else those of its completions; 0 where neither is known."""
    asked = {sample.group for sample in case.samples if sample.step == row.get("step") and sample.group is not None}
    return case.settings.prompts_per_step or len(asked)


def _left(before: Sequence[Row], after: Sequence[Row]) -> tuple[Left, ...]:
    """What left; () too where the KL says that nothing moved, and where it was learned."""
    kls = values_of(after, "kl")
    if len(after) < LEAST or (kls and max(kls) < NEAR) or _learned(before, after):
        return ()
    return tuple(one for column in COLUMNS if (one := _left_at_once(before, after, column)) is not None)


def _learned(before: Sequence[Row], after: Sequence[Row]) -> bool:
    """Whether the reward rose, by as much as matters: a broken policy may always earn the least that is paid."""
    starts, since = values_of(before, "reward/mean"), values_of(after[len(after) // 2 :], "reward/mean")
    return reward_rose(before, after) and fmean(since) - fmean(starts) >= least_fall(before)


def _left_at_once(before: Sequence[Row], after: Sequence[Row], column: Column) -> Left | None:
    """The column, where all but one of the next LEAST rows and LASTS of all the later ones are another policy's.

    A reward must have fallen by CLEAR of the deviations between the completions of a step: prompts differ.
    """
    starts, since = values_of(before, column.metric), values_of(after, column.metric)
    if not starts or len(since) < LEAST:
        return None
    start, fall = fmean(starts), 0.0
    if column.metric == "reward/mean":
        fall = 2 * CLEAR * least_fall(before)
        if fall == 0:
            return None
    beyond = [column.beyond(start, value) and (not fall or start - value >= fall) for value in since]
    if sum(beyond[:LEAST]) < MOST or fmean(beyond) < LASTS:
        return None
    return Left(metric=column.metric, kind=column.kind, start=start, now=median(since), p=1.0)
