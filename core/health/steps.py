"""Rows of a run around its updates: which acted, what was drawn before the first, when a column left its start.

Rows are drawn before their own update: those up to and including the first update's are the policy a run began with.
What was learned before the first completions (a supervised stage) belongs to that start.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from core.health.finding import Row, StepTable, sampled, steps_of

HOLD = 3  # values in a row: fewer are chance
Beyond = Callable[[float, float], bool]  # (what it was at the start, what it is) -> whether it has left


@dataclass(frozen=True, kw_only=True, slots=True)
class Onset:
    """When a column left for good: the first such step, and the updates that had acted by then."""

    metric: str
    step: int
    updates: int
    before: float  # its mean before any update acted
    after: float  # its median from that step on


def acted(row: Row) -> bool:
    """Whether the step's update moved weights: it was applied, at a rate that is not 0."""
    rate = row.get("learning_rate")
    if "update" in row:
        return row["update"] == 1 and rate != 0
    return bool(rate) and row.get("grad_norm") != 0  # a log without update marks: one at every step


def number(row: Row, metric: str) -> float | None:
    """The value of a column where it is a finite number."""
    value = row.get(metric)
    return value if value is not None and math.isfinite(value) else None


def values_of(rows: Sequence[Row], metric: str) -> list[float]:
    """The numbers of a column, where rows have one."""
    return [value for row in rows if (value := row.get(metric)) is not None and math.isfinite(value)]


def ends_of(rows: Sequence[Row], metric: str, *, least: int) -> tuple[list[float], list[float]]:
    """The first and the last fifth of a column's numbers, one at least; nothing of fewer than `least`."""
    values = values_of(rows, metric)
    part = max(1, len(values) // 5)
    return (values[:part], values[-part:]) if len(values) >= least else ([], [])


def best_and_last_level(values: Sequence[float]) -> tuple[Sequence[float], Sequence[float]]:
    """The best and the last of the levels that a sixth of the values make, two at least."""
    width = max(2, len(values) // 6)
    levels = (values[at : at + width] for at in range(0, len(values) - width + 1, width))
    return max(levels, key=fmean), values[-width:]


OF_SAMPLES = (
    "reward/", "rewards/", "groups/", "completions/", "advantage/", "kl", "policy/", "sampler/", "rollout/",
    "eval/reward",
)  # fmt: skip
_OF_PAIRS = ("/chosen", "/rejected", "/margins", "/accuracies")  # what DPO calls rewards


_CENTRED = 0.02  # a first loss nearer to 0 than that is of centred advantages: a cross-entropy begins far above


def learns_from_samples(rows: Sequence[Row]) -> bool:
    """Whether a log tells of a policy that learns from its own completions, by its columns: not SFT, not DPO.

    Of losses alone by their values: a cross-entropy is never negative, and does not begin near 0.
    """
    names = {name for row in rows for name in row}
    if any(name.endswith(_OF_PAIRS) for name in names):
        return False
    if any(name.startswith(OF_SAMPLES) for name in names):
        return True
    losses = values_of(rows, "loss")
    return bool(losses) and (min(losses) < 0 or abs(losses[0]) < _CENTRED)


STOOD, LITTLE = 0.02, 0.05  # of a held-out reward, and of its level: no more than the larger of them is no rise


def held_out_rose(first: float, last: float) -> bool:
    """Whether a held-out reward rose by more than a few answers of a hundred, where no error of it is known."""
    return last - first > max(STOOD, LITTLE * abs(first))


PAID = 0.1  # of the reward's early level, and of what is left to earn: less pays for nothing
BEYOND = 2.0  # standard errors of a difference: more than the scatter of the rows


def reward_gain(rows: Sequence[Row]) -> tuple[float, float, bool] | None:
    """(mean reward of the first fifth, of the last, whether that is a gain worth a price); None without two rewards.

    A gain is a tenth of the early level and of what is left to the most that can be earned (1, or the largest that was
    seen; unknown where rewards are negative), and two standard errors of the two means where they have some.
    """
    early, late = ends_of(rows, "reward/mean", least=2)
    if not early:
        return None
    before, after = fmean(early), fmean(late)
    everything = values_of(rows, "reward/mean")
    room = max(1.0, *everything, *values_of(rows, "reward/max")) - before if min(everything) >= 0 else 0.0
    scatter = spread(early, late) * math.sqrt(1 / len(early) + 1 / len(late))
    return before, after, after - before > max(PAID * abs(before), PAID * room, BEYOND * scatter)


SOLVED = 0.97  # of the most that can be earned
ROUNDED = 1e-6  # above 1: a mean of ones


def solved(rows: Sequence[Row]) -> bool:
    """Whether the rewards of the last fifth are nearly the most there is: 1, or the largest of a completion.

    Means above 1 without those are of rewards whose most nobody knows: one that stands at 2 may be of 5.
    """
    _, late = ends_of(rows, "reward/mean", least=2)
    means, largest = values_of(rows, "reward/mean"), values_of(rows, "reward/max")
    if not late or min(means + largest) < 0 or (not largest and max(means) > 1 + ROUNDED):
        return False
    return fmean(late) >= SOLVED * max(1.0, *means, *largest)


def parted(table: StepTable) -> tuple[list[Row], list[tuple[int, Row]]]:
    """The rows drawn before an update acted, the evaluation before step 1 included; and the later ones that sampled
    something, each with the number of updates that had acted before it. Updates before the first draw count nowhere.
    """
    before, after = [row for row in table if (row.get("step") or 0) < 1], list[tuple[int, Row]]()
    count, begun = 0, False
    for row in steps_of(table):
        begun = begun or drew(row)
        if count == 0:
            before.append(row)
        elif drew(row):
            after.append((count, row))
        count += begun and acted(row)
    return before, after


def drew(row: Row) -> bool:
    """Whether a step has completions of its own, in a log of any trainer."""
    return sampled(row) or "reward/mean" in row


def onset(table: StepTable, metric: str, beyond: Beyond, *, start: str | None = None) -> Onset | None:
    """From when on the column has left its start for good: HOLD values in a row, and most of those that follow.

    None where it has not, or where it is not known before an update acted. `start` is a column of the evaluation before
    step 1 that has the same meaning; it is taken where it is there, being of more completions.
    """
    before, after = parted(table)
    known = values_of(before, start or metric)[:1] if start else []
    known = known or values_of(before, metric)
    points = [(count, row, value) for count, row in after if (value := number(row, metric)) is not None]
    if not known or len(points) < HOLD:
        return None
    level = fmean(known)
    left = [beyond(level, value) for _, _, value in points]
    for index in range(len(points) - HOLD + 1):
        rest = left[index:]
        if all(rest[:HOLD]) and sum(rest) >= 0.8 * len(rest):
            count, row, _ = points[index]
            middle = median(value for _, _, value in points[index:])
            return Onset(metric=metric, step=int(row["step"] or 0), updates=count, before=level, after=middle)
    return None


def precedence_p(before: Sequence[float], after: Sequence[float]) -> float:
    """P(so many of `after` below all of `before`), were their order of no matter; 1 where a side is empty.

    Nelson's precedence test: that the k smallest of m + n values are all among the n has the chance
    C(m + n - k, m) / C(m + n, m). No law is assumed, and one value before proves nothing: its p is 1 / (n + 1) at best.
    """
    if not before or not after:
        return 1.0
    m, total, least = len(before), len(before) + len(after), min(before)
    below = sum(value < least for value in after)
    return math.comb(total - below, m) / math.comb(total, m)


def spread(*sides: Sequence[float]) -> float:
    """The std between the values of a side, pooled over the sides; 0 where none has two values."""
    freedom = sum(len(side) - 1 for side in sides if side)
    means = [fmean(side) if side else 0.0 for side in sides]
    squares = sum((one - mean) ** 2 for side, mean in zip(sides, means, strict=True) for one in side)
    return math.sqrt(squares / freedom) if freedom > 0 else 0.0
