"""Rewards that cannot teach: constant, missing, lost, never paid, or nearly the same for invalid completions.

Not here: groups of equal rewards (core.health.rules.groups), a flipped sign (core.health.rules.advantage_sign).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, pstdev

from core.health.case import Case
from core.health.finding import Confidence, Finding, Row, RuledOut, Severity, StepTable, steps_of
from core.health.rules.groups import DIGITS, groups_of
from core.health.statistics import chance_above, series, trend
from core.health.steps import values_of

ENOUGH = 10  # steps: fewer may be luck
FEWEST = 2  # rows whose rewards are all one number: fewer say too little to tell it from dead groups
WITHOUT_SPREAD = 3  # rows with one and the same mean, where no column tells the spread
SOME = 5  # such rows, for more than a hint
EQUAL = 1e-6  # relative: a std or a difference of means that is rounding, of fp32 too


def constant_reward(case: Case) -> Sequence[Finding]:
    """An error where completions that differ earned one and the same reward, all of them, on at least ten steps; a
    warning on fewer.

    A warning where valid and invalid ones are not known to have earned the same, or where it may be an end of its
    scale, a whole number: all prompts may be solved, none, or none beyond the form that every completion is paid for.
    Silent where all were invalid, or said the same: equal rewards are right then, and the policy is what is wrong.
    Silent too where anything else in the run earned another reward, an evaluation or a completion; but where
    evaluations differ among themselves and training always paid one number that is no end of a scale, that is a
    warning.

    ## constant-reward

    Severity: error (strong) where valid and invalid completions earned the same, or where a reward function's own
    column (`rewards/NAME`) differs from step to step and the sum does not; warning (moderate; weak on two, and below
    five without a column of the spread) where not, and on fewer than ten steps.

    Means: every completion of all steps, two or more, earned one and the same reward, although completions differ: the
    reward does not depend on the completion.

    Looks at: `reward/std` (or `reward/group_std`, `reward/max` - `reward/min`, all groups dead) of 0 up to fp32
    rounding on every step, and one mean over all of them; without any column of the spread three rows with one mean
    (weak below five). It replaces `dead-groups` and `no-updates`.

    Confounder: texts that differ may all have the form that is paid for (0.1, say) and none the answer; a whole number
    (0, 1, -1, ...) may be an end of the scale, with every prompt solved or none: both are warnings. Silent where
    nothing was valid, or all completions are one text (equal rewards are right then), and where an evaluation or a
    completion earned another reward, which refutes it. But a training reward that is always 0.37, no end of a scale,
    while evaluations differ among themselves is a warning: the training reward is broken, or all training prompts earn
    the same part.

    Do: score two answers, one right and one wrong, with the reward function by itself.

    Measured: 10 of 10 planted faults. `grpoctl run p31 --profile tiny --seed 1 'faults=[constant-reward]'`: the first
    finding, "every completion of 96 steps earned 0.5, valid or not, in 191 groups whose texts differ".
    """
    rows = [row for row in case.stage_rows if row.get("reward/mean") is not None]
    steps = len(rows) * case.averaged_over
    if steps < FEWEST or not _constant(rows):
        return ()
    valid = [share for _, share in series(rows, "completions/valid")]
    groups = groups_of(case.samples)
    if (valid and max(valid) == 0) or not _differ(case, rows) or _other_completions(case, rows):
        return ()
    value = round(float(rows[0]["reward/mean"] or 0.0), DIGITS)
    if any(not _equal(reward, value) for _, reward in series(case.rows, "eval/reward")):
        return _in_training_only(case, len(rows), value)
    mixed = bool(valid) and min(valid) < 1
    varied, part = sum(group.texts > 1 for group in groups), _part_that_differs(rows)
    sure = (mixed or part is not None) and not _may_be_an_end(value) and steps >= ENOUGH
    told = any(_spread(row) is not None for row in rows)
    little = steps <= FEWEST or (not told and steps < SOME)
    confidence: Confidence = "strong" if sure else "weak" if little else "moderate"
    severity: Severity = "error" if sure else "warning"
    return (
        Finding(
            id="constant-reward",
            severity=severity,
            summary=(
                f"every completion of {len(rows) * case.averaged_over} steps earned {value:g}"
                + (", valid or not" if mixed else "")
                + (f", in {varied} groups whose texts differ" if varied else "")
                + (f", whatever its {part} was" if part else "")
                + ": "
                + (_EITHER if severity == "warning" else "the reward does not depend on the completion")
            ),
            evidence={"reward": value, "steps": len(rows) * case.averaged_over, "varied_groups": varied},
            rules_out=()
            if severity == "warning"
            else tuple(RuledOut(id=id_, why=_WHY) for id_ in ("dead-groups", "weak-reward")),
            advice="score two answers, one right and one wrong, with the reward function by itself",
            confidence=confidence,
        ),
    )


_EITHER = (
    "all prompts are solved (or none is, and only a part is earned that every completion gets), or the reward does not "
    "depend on the completion; nothing can be learned either way"
)
_WHY = "no completion earned another reward than any other: neither prompts nor groups can be at fault"


def _constant(rows: Sequence[Row]) -> bool:
    means = [float(row["reward/mean"] or 0.0) for row in rows]
    room = EQUAL * max(1.0, *map(abs, means))
    stds = [_spread(row) for row in rows]
    known = [std for std in stds if std is not None]
    told = all(std <= room for std in known) and (
        len(known) == len(rows) or (not known and len(rows) >= WITHOUT_SPREAD)
    )
    return max(means) - min(means) <= room and told


def _spread(row: Row) -> float | None:
    """How far the rewards of a row are apart, by whichever column says it; None where none does."""
    low, high = row.get("reward/min"), row.get("reward/max")
    if (std := row.get("reward/std", row.get("reward/group_std"))) is not None:
        return std
    if low is not None and high is not None:
        return high - low
    return None if (dead := row.get("groups/dead")) is None else 1 - dead


def _differ(case: Case, rows: Sequence[Row]) -> bool:
    """Whether completions are known to differ, or nothing is known of it."""
    per_step = (case.settings.num_generations or 0) * (case.settings.prompts_per_step or 0)
    distinct = [
        float(row["completions/distinct"] or 0.0) for row in rows if row.get("completions/distinct") is not None
    ]
    if not distinct or not per_step:
        return True
    return max(distinct) * per_step > 1.5  # more than one text, rounding aside


def _other_completions(case: Case, rows: Sequence[Row]) -> bool:
    """Whether a completion earned another reward: then it depends on something."""
    value = float(rows[0]["reward/mean"] or 0.0)
    return any(not _equal(sample.reward, value) for sample in case.samples if sample.reward is not None)


def _equal(reward: float, value: float) -> bool:
    return abs(reward - value) <= EQUAL * max(1.0, abs(value))


def _part_that_differs(rows: Sequence[Row]) -> str | None:
    """A reward function that paid one step more than another, though all of them together did not."""
    names = sorted({name for row in rows for name in row if name.startswith("rewards/")})
    paid = {name: [value for _, value in series(rows, name)] for name in names}
    return next((name for name in names if paid[name] and not _equal(max(paid[name]), min(paid[name]))), None)


def _in_training_only(case: Case, count: int, value: float) -> Sequence[Finding]:
    """A warning where training always paid this, which is no end of a scale, and evaluations differ; else nothing."""
    evaluated = [reward for _, reward in series(case.rows, "eval/reward")]
    if _may_be_an_end(value) or _equal(max(evaluated), min(evaluated)):
        return ()
    steps = count * case.averaged_over
    return (
        Finding(
            id="constant-reward",
            severity="warning",
            summary=(
                f"every completion of {steps} training steps earned {value:g}, and evaluations {min(evaluated):.3g} to "
                f"{max(evaluated):.3g}: the training reward is broken, or every training prompt earns the same part"
            ),
            evidence={
                "reward": value,
                "steps": steps,
                "evaluated_min": min(evaluated),
                "evaluated_max": max(evaluated),
            },
            advice="score two training completions, one right and one wrong, with the training reward by itself",
            confidence="moderate",
        ),
    )


def _may_be_an_end(value: float) -> bool:
    """Whether the lowest or the highest reward may be this: 0, 1, -1, or a sum of such."""
    return abs(value - round(value)) <= EQUAL


FEW = 0.01  # share of completions without a reward that is not worth a word


def missing_rewards(table: StepTable) -> Finding | None:
    """A warning where more than one completion in a hundred had no reward, however few steps; an error where none had.

    A missing reward is left out of its group, so it costs samples.

    ## missing-rewards

    Severity: error where no completion had a reward, else warning.

    Means: more than one completion in a hundred had no reward and taught nothing: a reward function failed on them, or
    none applied.

    Looks at: `reward/missing`.

    Confounder: functions that return None by design for rows that they do not apply to.

    Do: read `RUN/log.txt` (where TRL trains, `RUN/trainer.log`): it says which function, with its traceback
    ([rewards](rewards.md#what-happens-when-it-fails)).
    """
    shares = [float(row["reward/missing"] or 0.0) for row in steps_of(table) if row.get("reward/missing") is not None]
    if not shares or (share := sum(shares) / len(shares)) <= FEW:
        return None
    return Finding(
        id="missing-rewards",
        severity="error" if share == 1 else "warning",
        summary=(
            f"{share:.0%} of the completions had no reward and taught nothing: a reward function failed on them, or "
            "none applied; the run's log.txt says which (where TRL trains, its trainer.log)"
        ),
        evidence={"share": share, "steps": len(shares)},
    )


REWARD = "reward/mean"


def lost_rewards(case: Case) -> Sequence[Finding]:
    """An error where no step has a reward that is a number, a warning where some have none; silent without rewards.

    A step that counts its completions without a reward is for missing-rewards.

    ## lost-rewards

    Severity: error where no step has a finite mean reward, warning where some have none (certain).

    Means: the mean reward of a step was recorded and is not a finite number: a reward function gave NaN, infinity or
    nothing.

    Looks at: `reward/mean`. Numbers of 1e100 or more count as not finite, with a note.

    Confounder: steps that count their completions without a reward (`reward/missing`): those are for `missing-rewards`.

    Do: call the reward functions on the completions of such a step and make each return a finite number: one NaN in a
    group makes the advantages of the whole group NaN.
    """
    rows = [row for row in case.steps if REWARD in row]
    lost = [row for row in rows if _is_lost(row)]
    if not lost:
        return ()
    every, first = len(lost) == len(rows), int(lost[0]["step"] or 0)
    what = "steps" if case.averaged_over == 1 else "rows"
    where = f"on {len(lost)} of {len(rows)} {what}" if len(rows) > 1 else "on the only step"
    return (
        Finding(
            id="lost-rewards",
            severity="error" if every else "warning",
            summary=(
                f"the mean reward is not a finite number {where}{'' if every else f' (first at step {first})'}: "
                f"a reward function gave NaN, infinity or nothing{', and nothing says what was learned' * every}"
            ),
            evidence={"steps": len(lost), "of": len(rows), "first": first},
            advice=(
                "call the reward functions on the completions of such a step and make each return a finite number: one "
                "NaN in a group makes the advantages of the whole group NaN"
            ),
            confidence="certain",
        ),
    )


def _is_lost(row: Row) -> bool:
    value = row[REWARD]
    return (value is None or not math.isfinite(value)) and not row.get("reward/missing")


IDLE_STEPS = 20  # steps
SIGNIFICANT = 1e-3
PREFIX = "rewards/"


def idle_reward(case: Case) -> Sequence[Finding]:
    """An info where a column of one reward function is 0 on every step and another's rises (p < 0.001).

    ## idle-reward

    Severity: info (moderate).

    Means: a reward function (`rewards/NAME`) paid exactly 0 on all steps, 20 or more, while another's rises (p <
    0.001): what is learned is the other function alone.

    Looks at: the `rewards/NAME` columns.

    Confounder: never earned, a penalty that was never due, or a parser that fails on everything: the rule cannot tell
    these apart.

    Do: call that function by itself on an answer known to be right.
    """
    rows = case.stage_rows
    names = sorted({name for row in rows for name in row if name.startswith(PREFIX)})
    idle = [name for name in names if len(values := values_of(rows, name)) >= IDLE_STEPS and not any(values)]
    lines = {name: line for name in names if name not in idle and (line := trend(series(rows, name))) is not None}
    rising = [name for name, line in lines.items() if chance_above(line.z) < SIGNIFICANT]
    if not idle or not rising:
        return ()
    return (
        Finding(
            id="idle-reward",
            severity="info",
            summary=(
                f"{', '.join(idle)} {'is' if len(idle) == 1 else 'are'} exactly 0 on all {len(rows)} steps while "
                f"{', '.join(rising)} {'rises' if len(rising) == 1 else 'rise'}: never earned, a penalty that was "
                "never due, or a function that cannot pay, as one whose parser fails"
            ),
            evidence={"idle": idle, "rising": rising, "steps": len(rows)},
            advice="call that function by itself on an answer known to be right",
            confidence="moderate",
        ),
    )


OF_EACH_KIND = 30  # completions of each kind
STEPS = 10  # with each kind: fewer say nothing about a mean
SHARE = 0.1  # of completions that are invalid: fewer are no matter of concern
KEPT = 0.5  # of what a valid completion earns above the lowest reward
FLAT = 0.5  # standard deviations of the reward
CLEAR = 3  # standard errors: a difference that is there, however small
MOST, LOST = 0.5, 0.2  # of the completions: valid, and no longer valid at the end
MOST = 0.5  # of all completions are valid: with fewer the form is not learned
LOST = 0.2  # of all completions fewer are valid in the last fifth of the steps than in the first
_Earned = Mapping[int, Sequence[tuple[bool, float]]]  # step -> (valid, reward) of its completions


@dataclass(frozen=True, kw_only=True, slots=True)
class Gap:
    """What valid completions earn more than invalid ones, on average."""

    valid: float
    invalid: float
    se: float  # of the difference, over steps

    @property
    def value(self) -> float:
        return self.valid - self.invalid


def gap(earned: _Earned) -> Gap:
    """The difference of the two means and its standard error, each step one cluster (the ratio estimator's sandwich).

    A step moves the difference by sum (r - mean of its kind) / n of that kind; the squares of those add up.
    """
    kinds = {kind: [r for rows in earned.values() for valid, r in rows if valid is kind] for kind in (True, False)}
    means = {kind: fmean(rewards) for kind, rewards in kinds.items()}
    moved = [
        sum((r - means[valid]) / (len(kinds[valid]) if valid else -len(kinds[valid])) for valid, r in rows)
        for rows in earned.values()
    ]
    steps = len(moved)
    return Gap(
        valid=means[True], invalid=means[False], se=sqrt(steps / (steps - 1) * sum(part * part for part in moved))
    )


def weak_reward(case: Case) -> Sequence[Finding]:
    """A warning where the reward hardly tells valid completions from invalid ones.

    That is: an invalid one keeps at least half of what a valid one earns above the lowest reward, and the difference,
    two standard errors added, is below half a standard deviation of the rewards. An info only where the form does not
    suffer, or the difference is small and beyond doubt: a policy can learn from that, slowly.

    The difference of means over all completions, with a standard error whose unit is the step: completions of one step
    share its prompts and its weights.

    ## weak-reward

    Severity: warning (moderate) where the form suffers: fewer than half of the completions are valid, or validity fell
    by 0.2 on a line three standard errors below level; else info. Info, too, where the difference is small and beyond
    doubt (above three standard errors): a policy can learn from that, slowly.

    Means: valid and invalid completions earn nearly the same, so hardly anything teaches the form.

    Looks at: validity and reward of each completion: 30 of each kind, each on ten steps, a tenth of all invalid. The
    difference of the two means; its standard error has the step as the unit (completions of one step share prompts and
    weights; each step's share of the difference is squared). It fires where the difference plus two standard errors is
    below half a standard deviation of the rewards, and an invalid completion keeps at least half of what a valid one
    earns above the lowest reward. `mixed_groups` of `groups` says in how many groups the two kinds met: only there can
    an advantage prefer the valid one.

    Confounder: a hard task where nearly everything earns 0: silent there.

    Do: give an invalid completion the lowest reward instead of what a fallback earns in its place, or add a reward for
    the form.

    Measured: P30: 0.578 against 0.495, difference 0.083, standard error 0.049, 8 mixed groups of 285. `grpoctl run p31
    -p tiny`, whose rewards are calibrated on P30's: 0.572 against 0.462, standard error 0.034: info.
    """
    earned = _earned(case)
    if not _enough(earned):
        return ()
    rewards = [r for rows in earned.values() for _, r in rows]
    lowest, spread, difference = min(rewards), pstdev(rewards), gap(earned)
    upper = difference.value + 2 * difference.se
    if spread == 0 or difference.valid <= lowest or upper >= FLAT * spread:
        return ()
    kept = (difference.invalid - lowest) / (difference.valid - lowest)
    if kept < KEPT:
        return ()
    clear = difference.value > CLEAR * difference.se
    pays = "validity earns little, but significantly more" if clear else "validity earns hardly more"
    return (
        Finding(
            id="weak-reward",
            severity="info" if clear or not _suffers(earned) else "warning",
            summary=(
                f"an invalid completion earned {difference.invalid:.3f} and a valid one {difference.valid:.3f} "
                f"(difference {difference.value:.3f}, standard error {difference.se:.3f} over steps): {pays}"
            ),
            evidence={
                "valid": difference.valid,
                "invalid": difference.invalid,
                "difference": difference.value,
                "se": difference.se,
                "upper": upper,
                "reward_std": spread,
                "kept": kept,
                "steps": len(earned),
                "samples": len(rewards),
                **_mixed(case),
            },
            advice=(
                "give an invalid completion the lowest reward instead of what a fallback earns in its place, or add a "
                "reward for the form"
            ),
            confidence="moderate",
        ),
    )


def _suffers(earned: _Earned) -> bool:
    """Whether most completions are invalid, or ever more of them."""
    shares = [(float(step), fmean(valid for valid, _ in rows)) for step, rows in sorted(earned.items())]
    values = [share for _, share in shares]
    if fmean(values) < MOST:
        return True
    part = max(1, len(values) // 5)
    line = trend(shares)
    return line is not None and line.z <= -CLEAR and fmean(values[:part]) - fmean(values[-part:]) >= LOST


def _earned(case: Case) -> _Earned:
    earned: dict[int, list[tuple[bool, float]]] = defaultdict(list)
    for sample in case.samples:
        if sample.valid is not None and sample.reward is not None:
            earned[sample.step].append((sample.valid, sample.reward))
    return earned


def _enough(earned: _Earned) -> bool:
    """Whether there are enough completions of both kinds, on enough steps, and the invalid ones matter."""
    counts = {kind: [sum(valid is kind for valid, _ in rows) for rows in earned.values()] for kind in (True, False)}
    many = all(sum(some) >= OF_EACH_KIND and sum(map(bool, some)) >= STEPS for some in counts.values())
    return many and sum(counts[False]) >= SHARE * sum(map(sum, counts.values()))


def _mixed(case: Case) -> dict[str, float]:
    """Groups with completions of both kinds: only there can an advantage prefer the valid one."""
    groups: dict[tuple[int, str], set[bool]] = defaultdict(set)
    for sample in case.samples:
        if sample.group is not None and sample.valid is not None:
            groups[sample.step, sample.group].add(sample.valid)
    return {"groups": len(groups), "mixed_groups": sum(len(kinds) == 2 for kinds in groups.values())} if groups else {}
