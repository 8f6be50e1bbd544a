"""Groups of one completion: nothing to compare with, so an advantage is the reward itself, or 0."""

from __future__ import annotations

from collections.abc import Sequence

from core.health.case import Case
from core.health.coverage import is_excerpt, learned
from core.health.finding import Confidence, Decider, Finding, Row, RuledOut, Severity
from core.health.steps import number, values_of

SAME = 1e-3  # relative: logs print rewards and advantages to three decimals
ENOUGH = 3  # rows: fewer may be equal by chance
ENDS = ("advantage/max", "reward/max", "advantage/min", "reward/min")
DEAD_ONES = ("advantage/max_abs", "advantage/std_all", "advantage/group_std")


def group_of_one(case: Case) -> Sequence[Finding]:
    """An error where groups are known to have one completion and nothing was learned; else a warning.

    ## group-of-one

    Severity: error where nothing was learned (every advantage is 0, or the reward did not rise beyond noise over ten
    rows of twenty steps or more) and the settings say it: certain with `num_generations` 1 and the group's baseline,
    strong where advantages are the rewards although the settings say otherwise. Warning where the reward rose, or the
    log is too short to tell; of moderate confidence where only the columns say that there is no baseline.

    Means: a group of one completion has no other to compare with. A reward less its own mean is 0: nothing is learned.
    verl takes mean 0 and deviation 1 for such a group, so that the advantage is the reward itself: REINFORCE without a
    baseline, which pushes everything up that earned anything. TRL refuses it.

    Looks at: `num_generations` (verl: `rollout.n`) and the baseline; else `advantage/max` = `reward/max` and
    `advantage/min` = `reward/min` on every row while the reward varies, or `advantage/mean` = `reward/mean` on three
    rows or more; equal to a thousandth.

    Confounder: advantages below the worst reward (most rows): something was taken off, so other settings made groups,
    and K says nothing. Rewards of 1 and -1 in halves have such advantages with any baseline: only rows whose advantages
    are on one side of 0, or have a mean that is not 0, count. A method without a baseline (`baseline=none`, REINFORCE,
    running means) has them by intent: silent where the settings say so, moderate where they say nothing. Groups of
    several whose baseline is lost (a prompt's completions that got different ids) look the same: said where K is known.

    Do: `num_generations=8` (verl: `actor_rollout_ref.rollout.n=8`; the prompt ids must be repeated with the prompts),
    or a baseline that needs no group (`advantage.baseline=running`; verl: `reinforce_plus_plus`, `gae`).
    """
    k, baseline = case.settings.num_generations, case.settings.baseline
    by_group = case.settings.baseline_traits is not None and case.settings.baseline_traits.scope == "group"
    if (baseline is not None and not by_group) or not case.stage_rows:
        return ()
    raw = _raw_rows(case.stage_rows)
    nothing = _all_zero(case.stage_rows)
    if not raw and (k != 1 or _centred(case.stage_rows)):
        return ()
    stood = nothing or (bool(values_of(case.stage_rows, "reward/mean")) and not is_excerpt(case) and not learned(case))
    severity: Severity = "error" if stood and (by_group or (k == 1 and nothing)) else "warning"
    confidence: Confidence = "certain" if by_group else "strong" if k == 1 else "moderate"
    if k is not None and k > 1:
        confidence = "strong" if by_group else "moderate"
    seen = f"advantages equal the rewards on {len(raw)} rows" if raw else ""
    if k == 1:
        what = "num_generations=1: a group has one completion and nothing to compare it with"
        what += f"; {seen}: there is no baseline" if raw else "; every advantage is 0" if nothing else ""
    elif k is None:
        what = f"{seen}, largest and smallest: groups have one completion, or the method has no baseline"
    else:
        what = (
            f"{seen} although num_generations={k}: each completion is a group of its own, or the method has no baseline"
        )
    return (
        Finding(
            id="group-of-one",
            severity=severity,
            summary=what
            + (
                ", so whatever earns anything is pushed up, good or bad"
                if raw
                else ""
                if nothing
                else ": its advantage is 0, or (verl) the reward itself"
            )
            + (", and the reward rose all the same" if learned(case) else ""),
            evidence={
                **({} if k is None else {"num_generations": k}),
                "rows_with_raw_advantages": len(raw),
                "rows": len(case.stage_rows),
            },
            rules_out=(
                RuledOut(id="dead-groups", why="the one reward of a group is equal to itself, whatever it is"),
                RuledOut(id="zero-loss", why="a group of one gives no signal whose sum could be 0"),
            )
            if k == 1 and not raw
            else (),
            suggest=("num_generations=8",) if k in (None, 1) else (),
            advice=(
                "give each prompt several completions under one id (verl: actor_rollout_ref.rollout.n=8), or take a "
                "baseline that needs no group"
            ),
            confidence=confidence,
            decider=Decider(
                question="do advantages of a prompt's completions add up to 0?",
                overrides=("num_generations=8",),
                expects=("advantage/mean < 0.01",),
            ),
        ),
    )


def _equal(one: float, other: float) -> bool:
    return abs(one - other) <= SAME * max(1.0, abs(one), abs(other))


def _raw_rows(rows: Sequence[Row]) -> list[Row]:
    """The rows that show it, where all rows agree with it: advantages as large as rewards, and not centred."""
    shown, known = list[Row](), 0
    for row in rows:
        high, best, low, worst = (number(row, name) for name in ENDS)
        if high is None or best is None or low is None or worst is None:
            continue
        if not (_equal(high, best) and _equal(low, worst)):
            return []
        known += 1
        mean = number(row, "advantage/mean")
        off = low >= 0 or high <= 0 or (mean is not None and abs(mean) > 0.05 * (high - low))
        shown += [row] if high - low > SAME and off else []
    return shown if known else _raw_means(rows)


def _raw_means(rows: Sequence[Row]) -> list[Row]:
    """The same by means alone: rows whose mean advantage is the mean reward, and another one each."""
    pairs = [
        (row, advantage, reward)
        for row in rows
        if (advantage := number(row, "advantage/mean")) is not None
        and (reward := number(row, "reward/mean")) is not None
    ]
    same = all(_equal(advantage, reward) for _, advantage, reward in pairs)
    means = {round(reward, 3) for _, _, reward in pairs if abs(reward) > 10 * SAME}
    return [row for row, _, _ in pairs] if same and len(means) >= ENOUGH else []


def _centred(rows: Sequence[Row]) -> bool:
    """Whether advantages go below what the worst completion earned: something was taken off, so K is not 1 after all.

    Trainers of agents put several episodes of a prompt together by settings of their own, with K at 1.
    """
    pairs = [
        (low, worst)
        for row in rows
        if (low := number(row, "advantage/min")) is not None and (worst := number(row, "reward/min")) is not None
    ]
    return sum(low < worst - SAME for low, worst in pairs) > len(pairs) / 2


def _all_zero(rows: Sequence[Row]) -> bool:
    """Whether advantages are known, and all 0."""
    ends = (*DEAD_ONES, "advantage/max", "advantage/min")
    known = [value for row in rows for name in ends if (value := number(row, name)) is not None]
    return bool(known) and not any(known)
