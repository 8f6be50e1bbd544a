"""When a run broke: the limits of the live guard, the rows before the first update, and breaks that last.

Rows are drawn before their own update: those up to and including the first update's are the policy a run began with.
What was learned before the first completions (a supervised stage) belongs to that start. A guard must stop a run at
once and knows only what was (`policy_collapse`). A rule reads the whole table and knows whether it was better before,
came back, and whether rewards or validity suffered (`breaks`). Not here: why (core.health.rules.policy_collapse).
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from core.config import GuardSpec
from core.health.case import Case
from core.health.finding import Finding, Row, StepTable, sampled, steps_of

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
    return [value for row in rows if (value := number(row, metric)) is not None]


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
    known = [value for row in before if (value := number(row, start or metric)) is not None][:1] if start else []
    known = known or [value for row in before if (value := number(row, metric)) is not None]
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


LOOK_BACK = 40  # times patience: how far back a metric that not every step has is looked for
_WATCHED_FOR_NAN = ("loss", "grad_norm", "kl", "entropy", "rollout/logprob_gap")


@dataclass(frozen=True, kw_only=True, slots=True)
class Limit:
    """What a guard does not allow of a column: values `below` the limit, or else above it."""

    metric: str
    value: float
    below: bool

    def broken(self, value: float) -> bool:
        """Whether a value is beyond it; the limit itself is allowed."""
        return value < self.value if self.below else value > self.value

    def __str__(self) -> str:
        return f"{'below' if self.below else 'above'} {self.value}"


def policy_collapse(table: StepTable, guards: GuardSpec) -> Finding | None:
    """An error where the table's last steps say the policy collapsed; one metric is enough."""
    rows = steps_of(table[-LOOK_BACK * guards.patience :])  # asked at every step: the whole table would be quadratic
    return _not_a_number(rows[-1:]) or next(
        (finding for limit in limits(guards) if (finding := _streak(rows, limit, guards.patience)) is not None),
        None,
    )


def limits(guards: GuardSpec) -> list[Limit]:
    """The limits that are watched, in the order they are asked."""
    candidates: tuple[tuple[str, float | None, bool], ...] = (
        ("completions/valid", guards.min_valid, True),
        ("entropy", guards.min_entropy, True),
        ("completions/truncated", guards.max_truncated, False),
        ("completions/length", guards.min_length, True),
        ("kl", guards.max_kl, False),
    )
    return [Limit(metric=metric, value=value, below=below) for metric, value, below in candidates if value is not None]


def _not_a_number(rows: StepTable) -> Finding | None:
    for row in rows:
        for metric in _WATCHED_FOR_NAN:
            if metric in row and row[metric] is None:
                step = int(row.get("step") or 0)
                kept = "" if row.get("update") else "; the update was not applied"
                return Finding(
                    id="numerical",
                    severity="error",
                    summary=f"step {step}: {metric} is not a finite number{kept}",
                    evidence={"step": step, "metric": metric},
                )
    return None


def _streak(rows: list[Row], limit: Limit, patience: int) -> Finding | None:
    """A finding where the last `patience` rows that have the metric all break its limit."""
    metric = limit.metric
    recent = [row for row in rows if row.get(metric) is not None][-patience:]
    values = [float(row[metric] or 0.0) for row in recent]
    if len(values) < patience or not all(map(limit.broken, values)):
        return None
    first, last = int(recent[0].get("step") or 0), int(recent[-1].get("step") or 0)
    return Finding(
        id="policy-collapse",
        severity="error",
        summary=f"{metric} stayed {limit} for {patience} steps in a row (to step {last}, last value {values[-1]:.3g})",
        evidence={"metric": metric, "first_step": first, "last_step": last, "value": values[-1]},
    )


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


def drawn(case: Case) -> list[Row]:
    """The steps from the first on that drew completions: a supervised stage before it has nothing to say."""
    rows = steps_of(case.rows)
    first = next((index for index, row in enumerate(rows) if drew(row)), 0)
    return rows[first:]


def breaks(case: Case) -> list[Break]:
    """The limits that were broken for good after sound steps, the first first; one entry per column at most."""
    rows = drawn(case)
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
