"""Limits of the live guard that were broken after sound steps and not come back from, and what suffered since.

The whole table is known: whether it was better before, came back, and whether rewards or validity fell. Not here: what
stops a run while it trains (core.health.guard), and why it broke (core.health.rules.policy_collapse).
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from core.health.case import Case
from core.health.finding import Row
from core.health.guard import Limit, limits
from core.health.steps import acted, drew, number, values_of

MOST = 0.8  # of the steps before it were sound, and of those that follow have not come back
CLEAR = 4.0  # standard errors that the reward must have fallen by
WINDOW = 10  # steps: the best stretch before is of so many
FEW = 5  # steps: fewer know no spread, and so few before may have been luck
FIRST_UNSOUND = 0.4  # of those few may be as bad, since nothing later is as good as the others
SPAN = 0.1  # of the range of the rewards of a run: a fall that is smaller harms nobody


@dataclass(frozen=True, kw_only=True, slots=True)
class Break:
    """A limit that was broken and not come back from: the steps of its stage that drew, before and since."""

    limit: Limit
    before: Sequence[Row]
    since: Sequence[Row]

    @property
    def first(self) -> int:
        """The first step of those."""
        return int(self.since[0].get("step") or 0)

    @property
    def values(self) -> list[float]:
        """The column since then."""
        return values_of(self.since, self.limit.metric)

    @property
    def share(self) -> float:
        """Of the steps since then, how many are beyond the limit."""
        return fmean(map(self.limit.broken, self.values))

    def __str__(self) -> str:
        on = "on every step" if self.share == 1 else f"on {self.share:.0%} of the steps"
        return f"{self.limit.metric} is {self.limit} {on} from step {self.first} on (last value {self.values[-1]:.3g})"


def drawn(case: Case) -> Sequence[Row]:
    """The steps from the first on that drew completions: a supervised stage before it has nothing to say."""
    rows = case.steps
    first = next((index for index, row in enumerate(rows) if drew(row)), 0)
    return rows[first:]


def breaks(case: Case) -> list[Break]:
    """The limits that were broken for good after sound steps, the first first; one entry per limit at most."""
    rows = case.once(drawn)
    found = [one for limit in limits(case.guards) if (one := _break(rows, limit, case.guards.patience)) is not None]
    return sorted(found, key=lambda one: one.first)


def _break(rows: Sequence[Row], limit: Limit, patience: int) -> Break | None:
    """From the earliest step after sound ones from which most of the rest come not back half way to their median.

    Somewhere in the rest is what a guard stops for. After FEW sound steps or less, which may have been luck, not one of
    the rest may be as good as they were.
    """
    points = [(index, value) for index, row in enumerate(rows) if (value := number(row, limit.metric)) is not None]
    values = [value for _, value in points]
    broken = list(map(limit.broken, values))
    last, so_far, ordered = _last_streak(broken, patience), 0, list[float]()
    for at in range(1, last + 1):
        insort(ordered, values[at - 1])
        so_far += broken[at - 1]
        if so_far > (FIRST_UNSOUND if at <= FEW else 1 - MOST) * at:
            continue
        usual = ordered[at // 2]  # the median, or the value above it
        away = _worse_than((usual + limit.value) / 2, limit)
        if not all(map(away, values[at : at + patience])) or fmean(map(away, values[at:])) < MOST:
            continue
        if at > FEW or all(map(_worse_than(usual, limit), values[at:])):
            return _of_its_stage(limit, rows, points[at][0])
    return None


def _of_its_stage(limit: Limit, rows: Sequence[Row], start: int) -> Break:
    """Another stage has other prompts and rewards, so it is no measure of harm: only where its own has too few rows."""
    own = rows[start].get("stage")
    since = [row for row in rows[start:] if row.get("stage") == own]
    before = [row for row in rows[:start] if row.get("stage") == own]
    return Break(limit=limit, before=before, since=since if len(since) >= FEW else rows[start:])


def _worse_than(value: float, limit: Limit) -> Callable[[float], bool]:
    return Limit(metric=limit.metric, value=value, below=limit.below).broken


def _last_streak(broken: Sequence[bool], patience: int) -> int:
    """Where the last `patience` broken values in a row begin; -1 where there are none."""
    return max((at for at in range(len(broken) - patience + 1) if all(broken[at : at + patience])), default=-1)


def harmed(change: Break) -> str | None:
    """What suffered since, in words; "" where nothing did, None where neither reward nor validity is known."""
    then, now = (values_of(rows, "completions/valid") for rows in (change.before, change.since))
    if then and now and fmean(now) < 0.5 * fmean(then):
        return f"valid completions fell from {fmean(then):.0%} to {fmean(now):.0%}"
    before, since = (values_of(rows, "reward/mean") for rows in (change.before, change.since))
    if not before or not since:
        return "" if then and now else None
    # Up to the first update: what was drawn before it.
    start = next((at for at, row in enumerate(change.before, 1) if acted(row)), len(change.before))
    best = max([*_stretches(before), values_of(change.before[:start], "reward/mean") or before], key=fmean)
    fell = _fell(best, since, span=max(before + since) - min(before + since))
    return f"the reward fell from {fmean(best):.3g} to {fmean(since):.3g}" if fell else ""


def _stretches(values: Sequence[float]) -> list[Sequence[float]]:
    """Cut from the end, so that only the first may be short, and that only where there is no other."""
    cut = [values[max(0, end - WINDOW) : end] for end in range(len(values), 0, -WINDOW)]
    return cut[:-1] if len(cut) > 1 and len(cut[-1]) < WINDOW else cut


def _fell(before: Sequence[float], since: Sequence[float], *, span: float) -> bool:
    """By CLEAR standard errors and SPAN of the range. The step is the unit; both sides have the larger spread."""
    fall = fmean(before) - fmean(since)
    if len(since) < FEW or fall <= SPAN * span:
        return False
    squares = [sum((one - fmean(side)) ** 2 for one in side) / (len(side) - 1) for side in (before, since) if side[1:]]
    error = math.sqrt(max(squares) * (1 / len(before) + 1 / len(since)))
    return fall > CLEAR * error
