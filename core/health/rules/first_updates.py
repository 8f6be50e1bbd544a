"""What the first updates of a stage did: did the KL to the start jump, did the policy become another one?

Both must last to the end of the table. Curves alone are a comparison of steps with steps, which one step before the
change, or two, cannot decide; a measured KL is direct, and so is the arithmetic of a rate that replaces the weights:
what Adam moves in one update (its limits stand below). Not here: what follows from it
(core.health.rules.learning_rate).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from core.health.case import Case
from core.health.finding import Row
from core.health.statistics import chance_above, series, trend
from core.health.steps import Beyond, acted, drew, number, parted, precedence_p, spread, values_of

FIRST = 10.0  # updates at the largest rate, those of a warm-up counted by their share of it: later is not their doing
FULL = 0.1  # an update at less than this share of the largest rate broke nothing
LEAST = 5  # rows after a change: fewer do not show that it lasts
LASTS = 0.8  # of the rows after it lie beyond all of those before
KINDS = 2  # of column that must have left, for it to be another policy's
SIGNIFICANT = 1e-3
FAR = 0.1  # nats per token after at most SOON updates; sound runs of ours have 7e-6 to 2e-3, a rate x100 0.2 to 0.7
NEAR = 1e-2  # nats per token: still the policy of the start
SOON = 3
CLEAR = 2.0  # in units of the spread between steps
RISEN = 3.0  # the same, of the reward
HALF = 0.5  # of the change is there at once: what comes slowly is no single update's doing
FELL = 0.3  # of the completions of an evaluation, no longer valid: a small evaluation draws less by chance
STEADY = 10.0  # times the largest KL just before: what grows so little is no change of that moment
AGAIN = 2  # evaluations that must agree
SURE = 4.0  # standard errors, of evaluations of the same prompts


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """A column, its kind (what breaks together counts once), and when its later level is another policy's."""

    metric: str
    kind: str
    beyond: Beyond


COLUMNS = (
    Column(metric="completions/valid", kind="harm", beyond=lambda start, now: now < 0.5 * start),
    Column(metric="reward/mean", kind="harm", beyond=lambda start, now: now < start),
    Column(metric="completions/truncated", kind="length", beyond=lambda start, now: now > start + 0.4),
    Column(metric="completions/length", kind="length", beyond=lambda start, now: not 0.5 * start <= now <= 1.6 * start),
    Column(metric="entropy", kind="entropy", beyond=lambda start, now: not 0.3 * start <= now <= 3.0 * start),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ColumnChange:
    """A column that left its start for good: its mean before, its median since."""

    metric: str
    kind: str
    start: float
    now: float
    p: float  # of so many later rows beyond all the earlier ones, were their order of no matter; 1 where none was asked


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyChange:
    """Steps before a change and after it, and what left there."""

    before: int
    after: int
    updates: int  # that had acted before the change
    changes: tuple[ColumnChange, ...]
    p: float  # of KINDS kinds and of harm among them, times the places where a change was looked for
    evaluated: bool  # the evaluations since are clearly worse
    proven: bool  # completions are worth less, and neither chance nor other prompts explain it: the KL changed too


@dataclass(frozen=True, kw_only=True, slots=True)
class KlJump:
    """A KL to the start that went from next to nothing to FAR within a few updates, and what is worse since."""

    kl: float  # the largest within SOON updates
    updates: int  # until the first that is FAR
    rate: float | None  # the largest that was used until then
    changes: tuple[ColumnChange, ...]
    evaluated: bool  # the evaluations since are clearly worse
    harmed: bool  # so are they, or the completions of the steps


@dataclass(frozen=True, kw_only=True, slots=True)
class Stage:
    """The rows of the stage that drew completions, in their order, and the updates that had acted before each."""

    rows: tuple[Row, ...]
    counts: tuple[int, ...]
    early: int  # so many of them were drawn within the first updates
    places: tuple[int, ...]  # early rows right after an update that was not a warm-up's beginning


def largest_rate(rows: Sequence[Row]) -> float | None:
    """The largest learning rate that was used; None where the log has none."""
    return max((rate for row in rows if (rate := number(row, "learning_rate"))), default=None)


def policy_change(case: Case) -> PolicyChange | None:
    """The change after which the policy is another one; None where there is none, or the reward rose clearly.

    None too where the KL or the evaluations say that it is not the policy that changed.
    """
    if case.averaged_over > 1:
        return None
    stage = stage_of(case)
    changes = [change for place in stage.places if (change := _split(case, stage, place)) is not None]
    return min(changes, key=lambda change: change.p, default=None)


def kl_jump(case: Case) -> KlJump | None:
    """The first KL that is FAR, where it was near 0 at most SOON updates before; None where it is another course."""
    if case.averaged_over > 1:
        return None
    stage = stage_of(case)
    kls = [(index, kl) for index in range(stage.early) if (kl := number(stage.rows[index], "kl")) is not None]
    far = next((index for index, kl in kls if kl >= FAR), None)
    near = [index for index, kl in kls if kl < NEAR and far is not None and index < far]
    if far is None or not near or (updates := _updates_between(stage, near[-1], far)) > SOON:
        return None
    if any(kl < NEAR for kl in values_of(stage.rows[far:], "kl")):
        return None  # it came back: weights that were thrown away do not
    before, after = stage.rows[: near[-1] + 1], stage.rows[near[-1] + 1 :]
    changes = tuple(_lasting_changes(before, after))
    evaluated = _evaluations_fell(case, before[-1])
    harmed = evaluated or any(change.kind == "harm" for change in changes)
    if not harmed and reward_rose(before, after):
        return None
    return KlJump(
        kl=dict(kls)[far],  # of the same row as `updates`
        updates=updates,
        rate=largest_rate(stage.rows[:far]),
        changes=changes,
        evaluated=evaluated,
        harmed=harmed,
    )


def reward_rose(before: Sequence[Row], after: Sequence[Row]) -> bool:
    """Whether the later half of what follows is clearly better paid than the start: it was learned."""
    starts, since = values_of(before, "reward/mean"), values_of(after[len(after) // 2 :], "reward/mean")
    if not starts or len(since) < 2:
        return False
    gain = fmean(since) - fmean(starts)
    line = trend(series([*before, *after], "reward/mean"))
    rising = line is not None and line.slope > 0 and chance_above(line.z) < SIGNIFICANT
    return gain > 0 and (gain >= RISEN * spread(starts, since) or (rising and fmean(since) > max(starts)))


def stage_of(case: Case) -> Stage:
    """The rows that the first updates are looked for in."""
    before, after = parted(case.stage_rows)
    drawn = [(0, row) for row in before if drew(row)] + after
    largest = largest_rate(case.stage_rows)
    worth, early, places = 0.0, 0, list[int]()
    shares = [_share(row, largest) if acted(row) else 0.0 for _, row in drawn]
    for index in range(len(drawn)):
        if worth <= FIRST:
            early = index + 1
            if index and shares[index - 1] >= FULL:
                places.append(index)
        worth += shares[index]
    rows, counts = tuple(row for _, row in drawn), tuple(count for count, _ in drawn)
    return Stage(rows=rows, counts=counts, early=early, places=tuple(places))


def _share(row: Row, largest: float | None) -> float:
    rate = number(row, "learning_rate")
    return 1.0 if rate is None or not largest else rate / largest


def _updates_between(stage: Stage, first: int, last: int) -> int:
    """Updates between two rows; a log without update marks made one at each step, those without a row included."""
    count = stage.counts[last] - stage.counts[first]
    steps = int((stage.rows[last].get("step") or 0) - (stage.rows[first].get("step") or 0))
    return count if "update" in stage.rows[last] else max(count, steps)


def _split(case: Case, stage: Stage, place: int) -> PolicyChange | None:
    before, after = stage.rows[:place], stage.rows[place:]
    if len(after) < LEAST or _is_unchanged_policy(case, before, after):
        return None
    changes = tuple(_lasting_changes(before, after))
    best = {
        kind: min(change.p for change in changes if change.kind == kind) for kind in {change.kind for change in changes}
    }
    worse = any(change.kind == "harm" or change.metric == "completions/truncated" for change in changes)
    if len(best) < KINDS or not worse or reward_rose(before, after):
        return None
    p = min(1.0, max(best.get("harm", 0.0), sorted(best.values())[KINDS - 1]) * len(stage.places))
    evaluated = _evaluations_fell(case, before[-1])
    return PolicyChange(
        before=place,
        after=len(after),
        updates=stage.counts[place],
        changes=changes,
        p=p,
        evaluated=evaluated,
        proven=evaluated or ("harm" in best and p < SIGNIFICANT and bool(values_of(after[:LEAST], "kl"))),
    )


def _is_unchanged_policy(case: Case, before: Sequence[Row], after: Sequence[Row]) -> bool:
    """Whether it was not the policy that changed: its KL just after the split is next to nothing or went on as before,
    or the evaluations since are on average no worse than before.
    """
    first, was = values_of(after[:LEAST], "kl"), values_of(before[-LEAST:], "kl")
    if first and (max(first) < NEAR or (was and max(first) < STEADY * max(was))):
        return True
    step = before[-1].get("step") or 0
    known = [(row.get("step") or 0, paid) for row in case.rows if (paid := number(row, "eval/reward")) is not None]
    then, since = [paid for at, paid in known if at < step], [paid for at, paid in known if at > step]
    return bool(then) and len(since) >= AGAIN and fmean(since) >= then[-1]


def _lasting_changes(before: Sequence[Row], after: Sequence[Row]) -> list[ColumnChange]:
    """The columns that left the start at once, clearly, and for good."""
    return [change for column in COLUMNS if (change := _lasting_change(before, after, column)) is not None]


def _lasting_change(before: Sequence[Row], after: Sequence[Row], column: Column) -> ColumnChange | None:
    starts, since = values_of(before, column.metric), values_of(after, column.metric)
    if not starts or len(since) < LEAST:
        return None
    start, now = fmean(starts), median(since)
    sign = -1.0 if now > start else 1.0
    starts, since = [sign * value for value in starts], [sign * value for value in since]
    least = least_fall(before) if column.metric == "reward/mean" else 0.0
    least_start = min(starts)
    lasts = sum(value < least_start for value in since) >= LASTS * len(since)
    clearly = abs(now - start) >= max(CLEAR * spread(starts, since), least)
    at_once = abs(now - start) * HALF <= start * sign - median(since[:LEAST])
    if not (column.beyond(start, now) and lasts and clearly and at_once):
        return None
    p = min(1.0, 2.0 * precedence_p(starts, since))  # twice: either way would have been looked at
    return ColumnChange(metric=column.metric, kind=column.kind, start=start, now=now, p=p)


def least_fall(rows: Sequence[Row]) -> float:
    """A difference in reward that matters: half of what completions of one step differ by."""
    return max(values_of(rows, "reward/std"), default=0.0) / 2


def _evaluations_fell(case: Case, last: Row) -> bool:
    """Whether all evaluations after this row are clearly worse than the last one before it, in reward or validity."""
    step = last.get("step") or 0
    known = [row for row in case.rows if number(row, "eval/reward") is not None]
    before = [row for row in known if (row.get("step") or 0) < step]
    after = [row for row in known if (row.get("step") or 0) > step]
    return bool(before) and len(after) >= AGAIN and all(_fell(before[-1], row) for row in after)


def _fell(before: Row, after: Row) -> bool:
    was, valid = number(before, "eval/valid"), number(after, "eval/valid")
    if was is not None and valid is not None and was - valid >= max(0.5 * was, FELL):
        return True
    paid, now = number(before, "eval/reward"), number(after, "eval/reward")
    errors = number(before, "eval/reward_se"), number(after, "eval/reward_se")
    if paid is None or now is None or errors[0] is None or errors[1] is None:
        return False
    return paid - now >= SURE * math.hypot(errors[0], errors[1]) > 0


WEIGHT = 0.02  # what a transformer's weights begin with: their std
LARGE = WEIGHT / 2  # a rate: moves half of a weight in an update; LoRA has 1e-4 to 2e-3, full weights 1e-6 to 1e-5
NOT_BY_THE_RATE = ("sgd", "asgd", "adadelta", "rprop")  # optimisers whose first update is not of the rate's size
PROMPTS = 4  # before the change: of fewer it may have been luck that they were answered well
MOST = LEAST - 1  # of the first LEAST rows after such an update: the policy is another one at once


@dataclass(frozen=True, kw_only=True, slots=True)
class DestructiveRate:
    """A rate of LARGE or more, and what left the start with the first updates at it, and for good."""

    rate: float
    updates: int  # that had acted by then
    changes: tuple[ColumnChange, ...]
    worse: bool  # completions are worth less, or no longer end


def destructive_rate(case: Case) -> DestructiveRate | None:
    """What such a rate did at once; None where there was none, where it was no Adam, or nothing left its start.

    None too where the reward rose by more than a little, where a KL measured since is next to nothing, and where fewer
    than PROMPTS prompts are known to have been answered before.
    """
    if case.averaged_over > 1 or (case.settings.optimizer or "adam").startswith(NOT_BY_THE_RATE):
        return None
    stage = stage_of(case)
    prompts = _prompts(case, stage.rows[0]) if stage.rows else 0
    large = ((place, _rate(case, stage.rows[place - 1])) for place in stage.places)
    place, rate = next(((at, rate) for at, rate in large if rate >= LARGE and at * prompts >= PROMPTS), (0, 0.0))
    changes = _sudden_changes(stage.rows[:place], stage.rows[place:]) if place else ()
    if not changes:
        return None
    worse = any(change.kind == "harm" or change.metric == "completions/truncated" for change in changes)
    return DestructiveRate(rate=rate, updates=stage.counts[place], changes=changes, worse=worse)


def _rate(case: Case, row: Row) -> float:
    """The rate of a row's update: its own, else the settings' where no warm-up is between."""
    own = number(row, "learning_rate")
    known = case.settings.learning_rate if not case.settings.warmup_steps else None
    return own if own is not None else known or 0.0


def _prompts(case: Case, row: Row) -> int:
    """The prompts of a step: as the settings say, else those of its completions; 0 where neither is known."""
    groups = {sample.group for sample in case.samples if sample.step == row.get("step") and sample.group is not None}
    return case.settings.prompts_per_step or len(groups)


def _sudden_changes(before: Sequence[Row], after: Sequence[Row]) -> tuple[ColumnChange, ...]:
    """What left; () too where the KL says that nothing moved, and where it was learned."""
    kls = values_of(after, "kl")
    if len(after) < LEAST or (kls and max(kls) < NEAR) or _learned(before, after):
        return ()
    return tuple(change for column in COLUMNS if (change := _sudden_change(before, after, column)) is not None)


def _learned(before: Sequence[Row], after: Sequence[Row]) -> bool:
    """Whether the reward rose, by as much as matters: a broken policy may always earn the least that is paid."""
    starts, since = values_of(before, "reward/mean"), values_of(after[len(after) // 2 :], "reward/mean")
    return reward_rose(before, after) and fmean(since) - fmean(starts) >= least_fall(before)


def _sudden_change(before: Sequence[Row], after: Sequence[Row], column: Column) -> ColumnChange | None:
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
    return ColumnChange(metric=column.metric, kind=column.kind, start=start, now=median(since), p=1.0)
