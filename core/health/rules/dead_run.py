"""A run that is dead: its reward lies at the floor and no two completions earn different ones, to the end of the log.

Not here: a reward that is one number elsewhere (core.health.rules.rewards) and groups that are dead while others live
(core.health.rules.groups).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from core.health.case import Case
from core.health.finding import Confidence, Decider, Finding, Row, RuledOut, Severity
from core.health.rules.rollout_mode import rollout_mode
from core.health.statistics import shown_p
from core.health.steps import number, values_of

AT_FLOOR = 1e-6  # of a reward: what is left of equal rewards by rounding
SHARE = 1 / 3  # of a run
ENOUGH = 10  # steps: a reward that is earned on one in ten is seen by then in two runs of three
SHORTEST = 3  # steps at the end of a log, whose rewards are known to have been equal
FEW = 5  # steps: fewer are how many a sound run of hard prompts begins with
NEARLY_ALL = 0.95  # of the rows of a stretch: one that earned a little ends no such stretch
HARDLY = 0.15  # of the rows
SPARED = 0.2  # of the rows before may be dead, too
UNLIKELY = 1e-4  # of such a stretch by chance, at the rate at which steps earned something before
RARE = 0.02  # the same, where it is worth a word
BY_CHANCE = 1.3  # standard errors of a difference of counts: what earns so much more often later gets better
ALL_CUT = 0.95  # share cut off: the reward cannot see an answer
ACROSS = 5  # rows on either side of a fall
_SAME = (
    "the policy went on as it was ({}), so what pays it changed: a judge or a sandbox that failed, a reward function "
    "that caught an error, or other prompts"
)
_LOST = "the policy was lost on the way ({})"
_EITHER = "the policy was lost on the way, or what pays it changed: no column tells"
FAR = 0.1  # nats a token: the policy is another one
REPLACED = "weight/supervised"


@dataclass(frozen=True, kw_only=True, slots=True)
class Bounds:
    """How far a column of the policy goes from row to row, and how far one does whose policy is another one."""

    metric: str
    usual: tuple[float, float]  # times what it was just before, and what is nothing anyway
    another: tuple[float, float]  # times what it was some way before, and more than this


_OF_THE_POLICY = (
    Bounds(metric="entropy", usual=(1.15, 0.0), another=(2.0, 0.0)),
    Bounds(metric="kl", usual=(1.5, 2e-4), another=(10.0, 0.05)),
    Bounds(metric="completions/length", usual=(1.15, 0.0), another=(1.6, 0.0)),
    Bounds(metric="completions/truncated", usual=(1.15, 0.05), another=(1.0, 0.3)),
)
_TELLING = ("entropy", "kl")  # a text of another policy may be as long
_DRIFTED = 1.5  # times what it was some way before: more is not as it was


def _is_beyond(was: float, now: float, bound: tuple[float, float]) -> bool:
    """Whether a value changed by more than a factor, either way, and by more than an amount."""
    factor, least = bound
    return abs(now - was) > least and not was / factor <= now <= was * factor


@dataclass(frozen=True, kw_only=True, slots=True)
class DeadStretch:
    """The rows from which on nothing was earned, and those before."""

    before: Sequence[Row]
    dead: Sequence[Row]
    of: int  # rows with a reward
    floor: float
    exact: bool  # the spread of the rewards is known, and 0
    p: float | None  # of the stretch by chance; None where nothing was ever earned
    seldom: bool = False  # hardly a row earned anything, and that is all

    @property
    def whole(self) -> bool:
        return len(self.dead) == self.of

    def across(self) -> tuple[list[str], list[str]]:
        """(columns of the policy that went on over the fall as they were, those of another policy since), in words.

        Rows since are held against those just before, and against some way before, so that a policy that was lost over
        a few rows is no usual one. A column that is in neither list tells nothing.
        """
        if self.p is None:  # dead rows among others: no fall
            return [], []
        same, left, drifts = [], [], False
        for bounds in _OF_THE_POLICY:
            values, since = values_of(self.before, bounds.metric), values_of(self.dead[:ACROSS], bounds.metric)
            if not values or not since or not any((*values, *since)):
                continue  # a column of zeros tells nothing
            first = values[-3 * ACROSS : -ACROSS] if len(values) > 2 * ACROSS else values[: (len(values) + 1) // 2]
            far, near, now = fmean(first), fmean(values[-ACROSS:]), fmean(since)
            if _is_beyond(far, now, bounds.another) or (bounds.metric == "kl" and now >= FAR):
                left.append(f"{bounds.metric} {far:.3g} to {now:.3g}")
            elif not _is_beyond(near, now, bounds.usual) and not _is_beyond(far, now, (_DRIFTED, bounds.usual[1])):
                same.append(f"{bounds.metric} {near:.3g} to {now:.3g}")
            else:
                drifts = True
        return ([] if drifts else same), left

    @property
    def paid_otherwise(self) -> bool:
        """Whether the policy is what it was before the fall, as far as columns that would tell are there."""
        same, left = self.across()
        return not left and any(words.startswith(_TELLING) for words in same)


def dead_stretch(case: Case) -> DeadStretch | None:
    """Where the run lies at its floor to the end, or its texts have no end and its policy is far away while it does.

    None where another loss than the reward's teaches, and where the floor may be the best there is.
    """
    rows = [row for row in case.stage_rows if number(row, "reward/mean") is not None]
    floor = _floor(case, rows)
    if floor is None or case.settings.supervised_weight or any(row.get(REPLACED) for row in rows):
        return None
    dead = [_is_dead(row, floor) for row in rows]
    start = _start(dead)
    before, stretch = rows[:start], rows[start:]
    p = (1 - (start - sum(dead[:start]) + 1) / (start + 2)) ** sum(dead[start:]) if before else None
    among = len(stretch) < SHARE * len(rows)  # others: no stretch to the end
    seldom = not among and p is not None and p >= RARE
    if among or seldom:
        before = [row for row, is_ in zip(rows, dead, strict=True) if not is_]
        stretch, p = [row for row, is_ in zip(rows, dead, strict=True) if is_], None
        if not (_lost(rows, dead, stretch) if among else _hardly_alive(rows, dead)):
            return None
    exact = all(_spread(row) is not None for row in stretch)
    return DeadStretch(before=before, dead=stretch, of=len(rows), floor=floor, exact=exact, p=p, seldom=seldom)


def _start(dead: Sequence[bool]) -> int:
    """The first of the dead rows that end the run; their number where the last is not.

    Where nearly all rows before had earned something, a few among the dead may have, too: it is the same stretch.
    """
    start = len(dead)
    while start and dead[start - 1]:
        start -= 1
    if start == len(dead):
        return start
    best, count = start, len(dead) - start
    for place in range(start - 1, -1, -1):
        count += dead[place]
        if dead[place] and count >= NEARLY_ALL * (len(dead) - place) and sum(dead[:place]) <= SPARED * place:
            best = place
    return best


def _alive_by_halves(dead: Sequence[bool]) -> tuple[int, int]:
    """The rows of the first and of the second half that earned something."""
    half = len(dead) // 2
    return dead[:half].count(False), dead[len(dead) - half :].count(False)


def _hardly_alive(rows: Sequence[Row], dead: Sequence[bool]) -> bool:
    """Whether rewards of all but a few rows were equal, which is known, and those few were no more at the end."""
    early, late = _alive_by_halves(dead)
    known = all(_spread(row) is not None for row in rows)
    return known and len(dead) >= FEW and dead.count(False) <= HARDLY * len(dead) and late <= early


def _lost(rows: Sequence[Row], dead: Sequence[bool], stretch: Sequence[Row]) -> bool:
    """Whether dead rows among others leave one reading: no text ends, the policy is far, and it does not get better."""
    early, late = _alive_by_halves(dead)
    no_better = late - early <= BY_CHANCE * math.sqrt(early + late)
    return no_better and len(stretch) >= max(ENOUGH, len(rows) / 2) and _cut(stretch) >= ALL_CUT and _far(stretch)


def _floor(case: Case, rows: Sequence[Row]) -> float | None:
    """The least reward: as the task says it, 0 where nothing is negative, else the least of all; None without one.

    A mean of 0 where others are negative is no floor; the greatest reward that the task has is none either.
    """
    if not rows:
        return None
    lowest = min([*values_of(rows, "reward/mean"), *values_of(rows, "reward/min")])
    parts = [row[name] for row in rows for name in row if name.startswith("rewards/")]
    if case.reward_range is not None:
        return case.reward_range[0]
    if lowest > AT_FLOOR:
        return None  # a reward that is 0.2 at least may have any floor
    if lowest < -AT_FLOOR:
        return lowest
    penal = any(value is not None and value < -AT_FLOOR for value in parts)
    return None if penal and not any((value or 0) > AT_FLOOR for value in parts) else 0.0


def _spread(row: Row) -> float | None:
    """How far rewards of the row lie apart; None where nothing says it."""
    known = [value for name in ("reward/std", "reward/group_std") if (value := number(row, name)) is not None]
    low, high, mean = (number(row, name) for name in ("reward/min", "reward/max", "reward/mean"))
    known += [high - low] if low is not None and high is not None else []
    known += [high - mean] if high is not None and mean is not None and not known and high > mean else []
    dead = number(row, "groups/dead")
    known += [1 - dead] if dead is not None and not known else []
    return max(known) if known else None


def _is_dead(row: Row, floor: float) -> bool:
    mean, spread = number(row, "reward/mean"), _spread(row)
    room = AT_FLOOR * max(1.0, abs(floor))
    return mean is not None and mean - floor <= room and (spread is None or spread <= room)


def _cut(rows: Sequence[Row]) -> float:
    cut = values_of(rows, "completions/truncated")
    return fmean(cut) if cut else 0.0


def _far(rows: Sequence[Row]) -> bool:
    kls = values_of(rows, "kl")
    return bool(kls) and fmean(kls) >= FAR


def dead_run(case: Case) -> Sequence[Finding]:
    """An error where the reward lies at its floor and nothing varies, on the last third of the run or more.

    ## dead-run

    Severity: error (strong from ten steps on, moderate from five) and with fewer, all of them so, where no completion
    ends or none is valid either; warning (moderate, weak for one) with fewer, all of them so, without that; warning
    (weak) for three or four at the end of a log whose spread is known to be 0.

    Means: every completion of the last third of the run or more earned the least that the reward gives. All advantages
    are 0, so from there on nothing is learned from the reward: the run cannot recover by itself, since a policy that is
    never paid gets no gradient towards what is paid; what the KL term moves leads back to the start at best.

    Looks at: `reward/mean` at the floor on every row from some row to the last, which are a third of all or more, with
    a spread of 0 where one is known (`reward/std`, `reward/group_std`, `reward/max` - `reward/min`, `groups/dead`). The
    floor is the task's, where it is known; 0 where no reward is negative; else the least mean of the run. Where
    something was earned before, the stretch must be no chance: with e of n steps before that earned something, m dead
    ones have the chance (1 - (e + 1) / (n + 2))^m, under 0.0001 for an error, under 0.02 for a warning. One row in
    twenty of it may earn a little. Steps that lie at the floor here and there, half of all or more and ten, count where
    95 % of their completions are cut off, the KL is above 0.1 and the second half did not earn clearly more often than
    the first (by 1.3 standard errors of the counts). What killed it is said as far as columns tell: completions that
    never end, none valid, a function of the reward that pays while the sum does not, a KL that left, good steps before.
    Across the fall entropy, KL, length and the share cut off are held against the five rows before it and some way
    before (five to fifteen rows, else the first half). Another policy: an entropy of half or twice, a length of 1.6
    times, 0.3 more cut off, a KL of 0.1. Where entropy or KL is known and all went on within 15 % (a KL 50 %; half over
    the longer way), the reward changed and not the policy: a judge that failed gives 0 to everything. Else either.

    Confounder: rewards that are sparse: silent where as long a stretch is likely by the steps before. Penalties: a mean
    of 0 is no floor where rewards are negative, and where all functions are 0 or less. A solved task has the same
    spread at the best reward: silent. Another loss that teaches (a supervised term): silent. A few rows of hard prompts
    look like it: fewer than five steps are a warning. Of one negative reward in the whole log nothing says that it is
    the least: `constant-reward` stands beside it then. Silent where `rollout-mode` explains it.

    Do: from the first step on: score a right answer with the reward function by itself, see whether one of the
    completions can be right at all (prompts, limit of tokens, format), begin with easier prompts or a supervised stage.
    After good steps: go back to a checkpoint before the fall, with a smaller learning rate or a larger `beta`.
    """
    stretch = dead_stretch(case)
    if stretch is None or rollout_mode(case) or _refuted(case, stretch):
        return ()
    dead, count = stretch.dead, len(stretch.dead) * case.averaged_over
    short = not stretch.whole and count < FEW
    if short and (count < SHORTEST or not stretch.exact):
        return ()
    hopeless = _cut(dead) >= ALL_CUT or _none_valid(dead)
    clear = stretch.p is None or stretch.p < UNLIKELY
    severity: Severity = "error" if clear and (count >= FEW or (count > 1 and hopeless)) else "warning"
    confidence: Confidence = "strong" if clear and count >= ENOUGH else "moderate" if count > 1 else "weak"
    if short or stretch.seldom:
        severity, confidence = "warning", "weak" if short else "moderate"
    first = int(dead[0].get("step") or 0)
    reasons, same = _reasons(case, stretch), stretch.paid_otherwise
    known = not stretch.whole or stretch.floor >= -AT_FLOOR or case.reward_range is not None
    return (
        Finding(
            id="dead-run",
            severity=severity,
            summary=(
                (
                    f"every completion of all {count} steps earned {stretch.floor:g}"
                    if stretch.whole
                    else f"{count} of {stretch.of * case.averaged_over} steps, from step {first} on, earned "
                    f"{stretch.floor:g} with every completion"
                )
                + (", the least there is" if known else ", and the log has no other reward")
                + ", so no advantage differs from 0 and nothing is learned from the reward"
                + ("" if stretch.exact else _unless(dead))
                + "".join(f"; {reason}" for reason in reasons)
            ),
            evidence={
                "floor": stretch.floor,
                "steps": count,
                "of": stretch.of * case.averaged_over,
                "first_step": first,
                **({} if stretch.p is None else {"p": stretch.p}),
                **({"before": fmean(values_of(stretch.before, "reward/mean"))} if stretch.before else {}),
                **_levels(dead),
            },
            rules_out=(RuledOut(id="constant-reward", why="the one reward is the least there is"),) if known else (),
            advice=(
                "see what the reward function returned there and what it caught; score a completion from before again"
                if same
                else "score a right answer with the reward function by itself; then easier prompts, a larger limit of "
                "tokens or a supervised stage, until a few completions earn something"
                if stretch.whole
                else "go back to a checkpoint before the fall, with a smaller learning rate or a larger beta"
            ),
            confidence=confidence,
            decider=Decider(
                question=(
                    "does a right answer, given to the reward function by itself, earn more than this?"
                    if stretch.whole
                    else "does a completion from before the fall still earn what it did?"
                    if same
                    else "does the checkpoint before the fall still earn its reward, sampled in eval mode?"
                )
            ),
        ),
    )


def paid_otherwise(case: Case) -> bool:
    """Whether the reward fell to its floor although the policy went on as it was: no collapse, then."""
    return any(one.severity == "error" for one in dead_run(case)) and (
        (stretch := dead_stretch(case)) is not None and stretch.paid_otherwise
    )


def _refuted(case: Case, stretch: DeadStretch) -> bool:
    """Whether a completion of these steps is known to have earned more."""
    steps = {row.get("step") for row in stretch.dead}
    more = [s.step for s in case.samples if s.reward is not None and s.reward > stretch.floor + AT_FLOOR]
    return len(steps.intersection(more)) > (1 - NEARLY_ALL) * len(steps)


def _none_valid(rows: Sequence[Row]) -> bool:
    valid = values_of(rows, "completions/valid")
    return bool(valid) and max(valid) == 0


def _unless(rows: Sequence[Row]) -> str:
    """What stands against it, where no column tells how far rewards of a step lie apart."""
    loss = max((abs(value) for value in values_of(rows, "policy/loss")), default=0.0)
    if loss <= AT_FLOOR:
        return " (no column tells the spread)"
    return (
        f" (no column tells the spread, and a policy loss of {loss:.2g} says that some reward may still have differed)"
    )


def _levels(rows: Sequence[Row]) -> dict[str, float]:
    """The means of what else is known of these rows."""
    names = ("completions/truncated", "completions/valid", "completions/length", "kl", "entropy", "grad_norm")
    return {name: fmean(values) for name in names if (values := values_of(rows, name))}


def _reasons(case: Case, stretch: DeadStretch) -> list[str]:
    """What the columns say of why, each in words."""
    dead, limit = stretch.dead, case.settings.max_completion_length
    reasons = []
    if stretch.before:
        p = "" if stretch.p is None else f", {shown_p(stretch.p)} by chance"
        earned = fmean(values_of(stretch.before, "reward/mean"))
        same, left = stretch.across()
        lost = _LOST.format(", ".join(left)) if left else _EITHER
        why = _SAME.format(", ".join(same)) if stretch.paid_otherwise else lost
        reasons.append(f"before, a step earned {earned:.3g} on average{p}: {why}")
    if _cut(dead) >= ALL_CUT:
        at = "" if limit is None else f" at {limit} tokens"
        reasons.append(f"{_cut(dead):.0%} of the completions are cut off{at}, before an answer can be read")
    if _none_valid(dead):
        reasons.append("none is valid, so the form is what is missing")
    if _far(dead):
        reasons.append(
            f"the KL to the reference is {fmean(values_of(dead, 'kl')):.2g}: the policy is far from its start"
        )
    parts = {name: values_of(dead, name) for row in dead for name in row if name.startswith("rewards/")}
    paid = sorted(name for name, values in parts.items() if values and max(values) > stretch.floor + AT_FLOOR)
    if paid:
        reasons.append(f"{', '.join(paid)} is earned and does not reach the sum")
    if stretch.whole and not paid:
        lost = ", or the policy was lost before this log begins" if case.begins_later else ""
        reasons.append(f"the prompts are too hard, answers are not recognised, or the reward function cannot pay{lost}")
    return reasons
