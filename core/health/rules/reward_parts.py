"""What the parts of a reward do to each other: shaped parts that teach alone, parts everyone gets, parts that conflict.

A part is a `rewards/NAME` column, the mean of one reward function. Not here: a part that was never paid while others
rise (`idle-reward`) and a sum that never changes (`constant-reward`), both of core.health.rules.rewards.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from core.health.case import Case
from core.health.finding import Confidence, Decider, Finding, Row, RuledOut, Severity
from core.health.statistics import chance_above, sample_sd, series, shown_p, shown_z, thirds, told_z, trend
from core.health.steps import number, values_of

_SPREADS = ("reward/group_std", "groups/dead", "reward/std")
PREFIX, STD = "rewards/", "reward/function_std/"
NONE = 1e-6  # of a reward
SIGNIFICANT = 1e-3
MANY = 10  # rows
SOME = 3  # rows: fewer are a hint
RARELY = 0.05  # of the completions: in a group of eight two thirds have no right answer then
OFTEN = 10  # times as often
NEVER, LONG = 0.01, 50  # of the completions, over so many steps: next to no group has a right answer
LINE = 8  # rows that a line needs
# Names by which reward functions say what they judge; any other may do either.
_ANSWER = re.compile(
    r"(?i)correct|正确|答对|准确|accura|(?<![a-z])acc(?![a-z])|answer|exact|solve|match|verif|outcome|(?<![a-z])em(?![a-z])"
)
_PLAINLY = re.compile(r"(?i)correct|正确|答对|准确|accura|(?<![a-z])acc(?![a-z])|exact|solve|verif")
_SHAPE = re.compile(
    r"(?i)format|length|(?<![a-z])len(?![a-z])|(?<![a-z])tags?(?![a-z])|xml|json|think|reason|structure|step|brev|concis|repet|"
    r"partial|cosine|style|language|int(eger)?(?![a-z])|digit|penalt|overlong|bonus"
)


_OF_PAIRS = ("chosen", "rejected", "margins", "margin", "accuracies")  # what DPO calls rewards: they are to part


def parts_of(rows: Sequence[Row]) -> list[str]:
    """The parts' columns that have a number, in the alphabet's order; those of chosen and rejected answers are none."""
    columns = sorted(name for name in set[str]().union(*rows) if name.startswith(PREFIX))
    names = [name for name in columns if any(number(row, name) is not None for row in rows)]
    stems = {name.removesuffix("chosen") for name in names if name.endswith("chosen")}
    pairs = {f"{stem}{kind}" for stem in stems for kind in _OF_PAIRS if f"{stem}rejected" in names}
    return [name for name in names if name not in pairs]


def is_answer(name: str) -> bool | None:
    """Whether a part judges the answer by its name; None where the name may mean either. `answer_format` is a form."""
    part = name.removeprefix(PREFIX)
    return False if _SHAPE.search(part) else True if _ANSWER.search(part) else None


def _differ(rows: Sequence[Row], paid: Sequence[str]) -> list[Row]:
    """The rows whose rewards differed; where no column tells the spread, those on which a part paid less than most."""
    if any(name in row for row in rows for name in _SPREADS):
        return [row for row in rows if _varied(row)]
    if not paid:  # all parts that are known are 0, and the sum is not: it is paid for something else
        sums = values_of(rows, "reward/mean")
        differs = len(sums) > 1 and max(sums) - min(sums) > NONE
        return [row for row in rows if differs and (number(row, "reward/mean") or 0.0) > NONE]
    most = {name: max(values_of(rows, name)) for name in paid}
    return [row for row in rows if any(NONE < (number(row, name) or 0.0) < 0.98 * most[name] for name in paid)]


def _varied(row: Row) -> bool:
    """Whether rewards of the row differed: over its completions, or inside a group where that is known."""
    inside = number(row, "reward/group_std")
    dead = number(row, "groups/dead")
    over = number(row, "reward/std")
    spread = inside if inside is not None else 1 - dead if dead is not None else over
    return spread is not None and spread > NONE


def proxy_reward(case: Case) -> Sequence[Finding]:
    """A warning where the part that judges the answer paid nothing, or did not move, while other parts taught.

    ## proxy-reward

    Severity: warning (strong from ten rows on, moderate from three) where the answer's part is 0 throughout and rewards
    differ all the same, or 0.01 at most without a rise over 50 steps; info for fewer rows (weak), where the answer's
    part is above 0 and rarely paid (moderate), where no name says which part is the answer's (moderate), or where it is
    only flat while the sum rises (moderate).

    Means: no completion had a right answer and groups still differed, so every advantage came from shaped parts: form,
    length, partial credit. The policy learns those, and the sum rises by them alone.

    Looks at: a `rewards/NAME` whose name says that it judges the answer (correct, accuracy, answer, exact, match, ...)
    and is 0 on every row, while rewards differ (`reward/group_std`, live groups, else `reward/std`; without any of them
    another part that pays more on some rows than on others) on half of the rows or more. Or that part is 0.05 at most
    on three rows or more and another is ten times as large (info; a warning where it is 0.01 on average, over 50 steps
    or more, and does not rise). Where no name says so: a part of another name that is 0 on every row while another
    part's rises. Or, on 8 rows or more, the answer's part without a trend (|z| < 2) while the sum rises with another
    part (p < 0.001).

    Confounder: the first steps of a sound run, which learns the form before the first right answer: the fewer the rows,
    the weaker. A part of the form that is never earned is no answer's (`idle-reward`). A part for the answer that
    stands at its best (0.95 of the largest or more): silent. Where another part of the answer is paid, nothing is said.

    Do: pay for the form only where the answer is right, or weigh it so that all of it is worth less than one right
    answer; see that a right answer is recognised (score one by itself); begin with prompts that are solved sometimes.
    """
    rows = case.stage_rows
    names = parts_of(rows)
    idle = [name for name in names if (values := values_of(rows, name)) and max(map(abs, values)) <= NONE]
    judged = [name for name in names if is_answer(name)]
    judged = [name for name in judged if _PLAINLY.search(name)] or judged  # rather than whether there is an answer
    varied = _differ(rows, [name for name in names if name not in idle])
    if judged and all(name in idle for name in judged):
        return _only_shapes(case, judged, varied, named=True) if 2 * len(varied) >= len(rows) else ()
    if judged:
        return _rare_answer(case, judged, names) or _flat_answer(case, judged, names)
    unnamed = [name for name in idle if is_answer(name) is None]
    rising = [name for name in names if name not in idle and _rises(rows, name)]
    if unnamed and rising and 2 * len(varied) >= len(rows):
        return _only_shapes(case, unnamed, varied, named=False)
    return ()


def _only_shapes(case: Case, idle: Sequence[str], varied: Sequence[Row], *, named: bool) -> Sequence[Finding]:
    rows = case.stage_rows
    others = [name for name in parts_of(rows) if name not in idle and any(values_of(rows, name))]
    count = len(varied) * case.averaged_over
    confidence: Confidence = "moderate" if not named else "strong" if count >= MANY else "moderate"
    severity: Severity = "warning" if named else "info"
    if count < SOME:
        severity, confidence = "info", "weak"
    paid = ", ".join(others) if others else "what else is in the sum"
    moved = [f"{name} from {values[0]:.3g} to {values[-1]:.3g}" for name in others if (values := values_of(rows, name))]
    return (
        Finding(
            id="proxy-reward",
            severity=severity,
            summary=(
                f"{', '.join(idle)} {'is' if len(idle) == 1 else 'are'} 0 on all {len(rows)} rows; rewards differ on"
                f" {len(varied)} of them all the same: no answer was right, and {paid} alone teaches"
                + (f" ({'; '.join(moved)})" if moved else "")
                + (
                    ""
                    if named
                    else "; which part judges the answer is not said, a part that was never due looks the same"
                )
            ),
            evidence={
                "unpaid": list(idle),
                "paid": others,
                "rows": len(rows),
                "varied": len(varied),
                **{f"{name}_last": values_of(rows, name)[-1] for name in others},
            },
            rules_out=(
                RuledOut(
                    id="group-size", why="a larger group has no right answer to prefer either, until there is one"
                ),
            )
            if named
            else (),
            advice=(
                "pay for the form only with a right answer, or less for all of it than for one; score a right answer "
                "by itself; begin with prompts that are solved now and then"
            ),
            confidence=confidence,
            decider=Decider(question="is a completion with a right answer in these steps, and what did it earn?"),
        ),
    )


def _rare_answer(case: Case, judged: Sequence[str], names: Sequence[str]) -> Sequence[Finding]:
    """An info where at most one answer in twenty is right, and another part is earned ten times as often."""
    rows = case.stage_rows
    right = [max(values_of(rows, name)) for name in judged]
    means = {name: fmean(values_of(rows, name)) for name in names}
    others = [name for name in names if name not in judged and means[name] >= OFTEN * max(means[one] for one in judged)]
    if len(rows) < SOME or max(right) > RARELY or not any(means[name] > RARELY for name in others):
        return ()
    paid = ", ".join(f"{name} {_ends(values_of(rows, name))}" for name in others)
    lines = [line for name in judged if (line := _line(rows, name)) is not None]
    long = len(rows) * case.averaged_over >= LONG and len(lines) == len(judged)
    hopeless = long and max(means[name] for name in judged) <= NEVER and all(line.z < 2 for line in lines)
    return (
        Finding(
            id="proxy-reward",
            severity="warning" if hopeless else "info",
            summary=(
                f"{', '.join(judged)} {'is' if len(judged) == 1 else 'are'} {max(right):.2g} at most;"
                f" other parts are earned ten times as often ({paid}): nearly all groups are told apart by those"
            ),
            evidence={"rare": list(judged), "most": max(right), "paid": others, "rows": len(rows)},
            advice=(
                "begin with prompts that are solved now and then; weigh all other parts less than one right answer; "
                "score a right answer by itself"
            ),
            confidence="moderate",
            decider=Decider(question="in how many groups do completions differ in the answer's part?"),
        ),
    )


def _flat_answer(case: Case, judged: Sequence[str], names: Sequence[str]) -> Sequence[Finding]:
    """The answer's parts have no trend and room above, the sum and another part rise."""
    rows = case.stage_rows
    lines = {name: _line(rows, name) for name in names}
    flat = [line for name in judged if (line := lines[name]) is not None]
    if len(flat) < len(judged) or any(abs(line.z) >= 2 or line.high >= 0.95 * max(1.0, line.most) for line in flat):
        return ()
    rising = [name for name in names if name not in judged and _rises(rows, name)]
    if not rising or not _rises(rows, "reward/mean"):
        return ()
    answer = judged[0]
    return (
        Finding(
            id="proxy-reward",
            severity="info",
            summary=(
                f"the reward rises with {', '.join(rising)}, and {', '.join(judged)} without (mean {flat[0].mean:.3g}, "
                f"trend {shown_z(flat[0].z)} over {len(rows)} rows): the form is learned and the answer is "
                "not, so far"
            ),
            evidence={
                "flat": list(judged), "rising": rising, "rows": len(rows), f"{answer}_z": told_z(flat[0].z),
                f"{answer}_mean": flat[0].mean,
                **{f"{name}_z": told_z(line.z) for name in rising if (line := lines[name]) is not None},
            },
            advice=(
                "follow the answer's part by itself; weigh all of the form less than one right answer"
            ),
            confidence="moderate",
            decider=Decider(question="does the answer's part rise once the form is at its best?"),
        ),
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """A column's trend in standard errors that allow for a drift, and what it changed by."""

    z: float
    change: float  # along the line, from the first row to the last
    noise: float  # the sd around it
    mean: float
    high: float  # the mean of its last third
    most: float

    @property
    def p(self) -> float:
        """One-sided, in its own direction."""
        return chance_above(abs(self.z))


def _line(rows: Sequence[Row], name: str) -> Line | None:
    """Of LINE rows or more. Values that drift are worth fewer: the error grows with how alike neighbours are."""
    points = series(rows, name)
    line = trend(points)
    if line is None:
        return None
    values = [value for _, value in points]
    left = [value - line.slope * step for step, value in points]
    centre = fmean(left)
    square = math.fsum((one - centre) ** 2 for one in left)
    alike = math.fsum((a - centre) * (b - centre) for a, b in pairwise(left)) / square if square > 0 else 0.0
    alike = min(max(alike, 0.0), 0.95)
    return Line(
        z=line.z * math.sqrt((1 - alike) / (1 + alike)) if math.isfinite(line.z) else math.copysign(99.0, line.slope),
        change=line.slope * (points[-1][0] - points[0][0]),
        noise=sample_sd(left) or 0.0,
        mean=fmean(values),
        high=fmean(values[-max(1, len(values) // 3) :]),
        most=max(values),
    )


def _rises(rows: Sequence[Row], name: str) -> bool:
    line = _line(rows, name)
    return line is not None and line.z > 0 and line.p < SIGNIFICANT


FELT = 0.1  # of a part's size: less than this may be rounding, or a best value that is not quite kept
IN_ORDER = 5  # rows that rise, or fall, one after another: 1 / 120 by chance
FEW_IN_ORDER = 3  # enough where each part changes by FELT_BY_FEW of its size, and one of them by MUCH
FELT_BY_FEW = 0.4
STANDS = 0.05  # of what a column changed by: its scatter once it has settled; a random walk has 0.2
COUNTS = 0.1  # of the largest part: what changes by less pulls at nothing
MUCH = 0.25  # of a reward between 0 and 1: four standard errors of 64 answers


def component_conflict(case: Case) -> Sequence[Finding]:
    """A warning where one part of the reward rises while another falls, both beyond noise.

    ## component-conflict

    Severity: warning (moderate; strong where both are lines and the sum does not rise either, so that one part pays for
    the other; weak with 2 to 7 rows, all in order).

    Means: two reward functions pull against each other and one wins: one part rises at the other's cost, and the sum
    hides it.

    Looks at: the `rewards/NAME` columns over 8 rows or more: one with a rising and one with a falling trend, both p <
    0.001 after a correction for the number of pairs and for drift (the standard error times sqrt((1 + r) / (1 - r)), r
    the correlation of neighbours around the line), each by more than its noise between rows and by a tenth of its own
    size. Or a part that settled at another level, higher by a tenth of its size or lower by a quarter, and by a tenth
    of the largest part's: its last half scatters by a twentieth of the change at most, and its first three rows (one,
    where rows are means of several steps) lie on the other side of the middle. With 5 to 7 rows: every row of the one
    above the one before, every row of the other below; with 3 or 4 also by 0.4 of each one's size, and one of them by
    0.25; so do two rows that are not of single steps (a start and an end).

    Confounder: parts that wander by chance (the correction); a part that leaves its best value by a little (a tenth of
    its size); two names of one thing with opposite sign, and a part that is a price of another (a length penalty beside
    an answer that needs the length): these are conflicts, and may be meant. Prompts that become harder lower the
    answer's part whatever the form's does: named where the falling part judges the answer.

    Do: weigh the parts so that what matters wins, or pay the lesser part only where the main one is earned; look at a
    completion that earns the rising part and not the falling one.
    """
    rows = case.stage_rows
    names = parts_of(rows)
    pairs = max(1, len(names) * (len(names) - 1))
    lines = {name: line for name in names if (line := _line(rows, name)) is not None}
    largest = max((abs(value) for name in names for value in values_of(rows, name)), default=0.0)
    clear = {
        name: line.z
        if line.p * pairs < SIGNIFICANT and _felt(line, rows, name)
        else _settled(values_of(rows, name), 1 if case.averaged_over > 1 else FEW_IN_ORDER, COUNTS * largest)
        for name, line in lines.items()
    }
    up = [name for name, way in clear.items() if way > 0]
    down = [name for name, way in clear.items() if way < 0]
    few = not lines
    if few:
        least = 2 if case.averaged_over > 1 else FEW_IN_ORDER
        up = [name for name in names if _in_order(values_of(rows, name), 1, least)]
        down = [name for name in names if _in_order(values_of(rows, name), -1, least)]
        courses = [values_of(rows, name) for name in (*up, *down)]
        if len(rows) < IN_ORDER and max((abs(c[-1] - c[0]) for c in courses), default=0.0) < MUCH:
            return ()
    if not up or not down:
        return ()
    total, ends = _line(rows, "reward/mean"), thirds(values_of(rows, "reward/mean") or [0.0])
    hidden = total is not None and total.z < 2 and ends[1] <= ends[0]
    words = [f"{name} {_ends(values_of(rows, name))}" for name in (*up, *down)]
    ps = [p for name in (*up, *down) if name in lines and (p := lines[name].p) * pairs < SIGNIFICANT]
    all_lines = len(ps) == len(up) + len(down)
    prompts = any(is_answer(name) is not False for name in down)
    confidence: Confidence = "weak" if few else "strong" if hidden and all_lines and not prompts else "moderate"
    return (
        Finding(
            id="component-conflict",
            severity="warning",
            summary=(
                f"{', '.join(up)} {'rises' if len(up) == 1 else 'rise'} while {', '.join(down)} "
                f"{'falls' if len(down) == 1 else 'fall'} over {len(rows)} rows ({'; '.join(words)}"
                + (f"; {shown_p(max(ps))} or less each" if all_lines else "")
                + "): they pull against each other"
                + (" and the sum hides it" if hidden else "")
                + (", or the prompts became harder" if prompts else "")
            ),
            evidence={
                "rising": up,
                "falling": down,
                "rows": len(rows),
                **{f"{name}_z": told_z(lines[name].z) for name in (*up, *down) if name in lines},
                **({} if total is None else {"reward_z": told_z(total.z)}),
            },
            advice=(
                "weigh them so that what matters wins, or pay the lesser part only where the main one is earned; read "
                "a completion that earns the one and not the other"
            ),
            confidence=confidence,
            decider=Decider(
                question="does the falling part hold on the same prompts with the rising part's weight at 0?"
            ),
        ),
    )


def _settled(values: Sequence[float], first: int, least: float) -> float:
    """What a column changed by that left the level of its first rows and stands at another; 0.0 where it did not, or
    by less than `least`.
    """
    start, rest = values[:first], values[len(values) // 2 :]
    middle, change = (fmean(start) + fmean(rest)) / 2, fmean(rest) - fmean(start)
    beyond = all((value - middle) * change < 0 for value in start)
    stands = (sample_sd(rest) or 0.0) <= STANDS * abs(change)
    felt = max((FELT if change > 0 else MUCH) * max(map(abs, values)), least)
    return change if beyond and stands and abs(change) >= felt else 0.0


def _felt(line: Line, rows: Sequence[Row], name: str) -> bool:
    size = max(map(abs, values_of(rows, name)))
    return abs(line.change) > max(line.noise, FELT * size)


def _in_order(values: Sequence[float], sign: int, least: int) -> bool:
    size = max(map(abs, values), default=0.0)
    felt = FELT if len(values) >= IN_ORDER else FELT_BY_FEW
    return (
        len(values) >= least
        and all(sign * (b - a) > 0 for a, b in pairwise(values))
        and (abs(values[-1] - values[0]) > felt * size)
    )


def _ends(values: Sequence[float]) -> str:
    first, last = thirds(values)
    return f"{first:.3g} to {last:.3g}"


def free_reward(case: Case) -> Sequence[Finding]:
    """An info where a part of the reward was the same positive number for every completion of every row.

    Documented with `paid_for_nothing`.
    """
    rows = case.stage_rows
    names = parts_of(rows)
    held_out = {name: values_of(case.rows, f"eval/{name}") for name in names}  # paid by the same function
    free = [name for name in names if _is_free(rows, name, held_out[name])]
    moving = [name for name in (*names, "reward/mean") if name not in free and len(set(values_of(rows, name))) > 1]
    if not free or (len(rows) > 1 and not moving):
        return ()  # one number for everything: constant-reward
    spread_known = all(values_of(rows, _std_of(name)) for name in free)
    amounts = {name: values_of(rows, name)[0] for name in free}
    shown = ", ".join(f"{name} ({amount:.3g})" for name, amount in amounts.items())
    total = fmean(values_of(rows, "reward/mean")) if values_of(rows, "reward/mean") else None
    share = "" if total is None or total <= 0 else f" of a mean reward of {total:.3g}"
    return (
        Finding(
            id="free-reward",
            severity="info",
            summary=(
                f"every completion of {len(rows)} rows earned the same {shown}{share}: a constant cancels in the group "
                "baseline and teaches nothing, so it only lifts the reward that is read; a form that is always right, "
                "or a function that does not look at the completion"
            ),
            evidence={**amounts, "rows": len(rows), **({} if total is None else {"reward": total})},
            advice="leave it out of the reward, or see with an empty answer that the function can refuse it",
            confidence=_confidence(len(rows), spread_known),
            decider=Decider(question="what does the function pay for an empty answer?"),
        ),
    )


def _confidence(rows: int, spread_known: bool) -> Confidence:
    if spread_known:
        return "strong" if rows >= SOME else "weak"
    return "moderate" if rows >= 2 * SOME else "weak"


def _std_of(name: str) -> str:
    return STD + name.removeprefix(PREFIX)


def _is_free(rows: Sequence[Row], name: str, held_out: Sequence[float]) -> bool:
    """Positive, one number, and with no spread inside a row where that is known; without it on more rows."""
    values, stds = [*values_of(rows, name), *held_out], values_of(rows, _std_of(name))
    if not values or min(values) <= NONE or max(values) - min(values) > NONE * max(values):
        return False
    return max(stds) <= NONE if stds else len(values) >= (SOME if _is_between(values[0]) else 2 * SOME)


def _is_between(value: float) -> bool:
    """Whether it is no whole number: a function that is always fully earned mostly pays 1."""
    return not float(value).is_integer()


EMPTY = 8.0  # tokens: next to nothing
SHRUNK = 0.25  # of what it was
KEPT = 0.9  # of the reward


def paid_for_nothing(case: Case) -> Finding | None:
    """A warning where completions shrink to a few tokens and the reward stays: an empty answer is paid.

    ## free-reward

    Severity: info (strong with a deviation of 0, moderate without, weak for few rows) for a part that every
    completion gets; warning (moderate; weak below eight rows) where an empty answer is paid.

    Means: every completion earns the same part of the reward. A constant cancels in the group baseline: it teaches
    nothing and harms nothing, but the reward that is read is higher by it. Or: answers of next to nothing earn what
    long ones earned, so saying nothing is a way to be paid.

    Looks at: a `rewards/NAME` that is one positive number on every row, with `reward/function_std/NAME` of 0 (without
    that column on six rows and evaluations or more; three where it is no whole number), while another part or the sum
    varies. And `completions/length`, which falls to eight tokens or fewer and a quarter of what it was, while the mean
    reward keeps nine tenths of what it was and does not rise by half of the spread of a step's rewards.

    Confounder: a form that the model had right from the start looks the same as a function that pays for anything: an
    empty answer decides. A part that rose to its best before is not constant over the rows: silent. Answers that are
    short because short is right: the reward rises with them, or validity stays at 90 % and more: silent then. A sum
    that never changes is `constant-reward`'s.

    Do: score an empty answer with each function. Leave a constant out of the reward; pay an empty answer the least.
    """
    rows = [row for row in case.stage_rows if number(row, "reward/mean") is not None]
    lengths = values_of(rows, "completions/length")
    third = max(1, len(rows) // 3)
    if len(rows) < 2 or len(lengths) < len(rows):
        return None
    long, short = fmean(lengths[:third]), fmean(lengths[-third:])
    rewards, valid = values_of(rows, "reward/mean"), values_of(rows[-third:], "completions/valid")
    before, since = fmean(rewards[:third]), fmean(rewards[-third:])
    spread = fmean(stds) if (stds := values_of(rows[:third], "reward/std")) else 0.0
    small = short <= EMPTY and short <= SHRUNK * long
    kept = before > NONE and KEPT * before <= since <= before + max(spread / 2, 0.1 * before)
    if not small or not kept or (valid and fmean(valid) >= 0.9):
        return None
    return Finding(
        id="free-reward",
        severity="warning",
        summary=(
            f"completions shrank from {long:.3g} to {short:.2g} tokens and still earn {since:.3g} ({before:.3g} before)"
            ": an answer of next to nothing is paid, or short answers are what is asked for"
        ),
        evidence={
            "length_first": long, "length_last": short, "reward_first": before, "reward_last": since, "rows": len(rows),
        },
        advice="score an empty answer with the reward function: it is to earn the least",
        confidence="weak" if len(rows) < LINE else "moderate",
        decider=Decider(question="what does an empty answer earn?", expects=("completions/length > 8",)),
    )  # fmt: skip
