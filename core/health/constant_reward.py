"""Does the reward depend on the completion at all?"""

from __future__ import annotations

from collections.abc import Sequence

from core.health.case import Case
from core.health.finding import Confidence, Finding, Row, RuledOut, Severity, steps_of
from core.health.group_outcomes import DIGITS, groups_of
from core.health.trend import series

ENOUGH = 10  # steps: fewer may be luck
EQUAL = 1e-6  # relative: a std or a difference of means that is rounding, of fp32 too


def constant_reward(case: Case) -> Sequence[Finding]:
    """An error where completions that differ earned one and the same reward, all of them, on at least ten steps.

    A warning where that reward may be an end of its scale, a whole number: all prompts may be solved, or none. Silent
    where all were invalid, or said the same: equal rewards are right then, and the policy is what is wrong. Silent too
    where anything else in the run earned another reward, an evaluation or a completion.
    """
    rows = [row for row in steps_of(case.rows) if row.get("reward/mean") is not None]
    if len(rows) * case.averaged_over < ENOUGH or not _constant(rows):
        return ()
    valid = [share for _, share in series(rows, "completions/valid")]
    groups = groups_of(case.samples)
    if (valid and max(valid) == 0) or not _differ(case, rows) or _another(case, rows):
        return ()
    mixed = bool(valid) and min(valid) < 1
    value = round(float(rows[0]["reward/mean"] or 0.0), DIGITS)
    varied = sum(group.texts > 1 for group in groups)
    confidence, severity = _certainty(mixed, varied, value)
    return (
        Finding(
            id="constant-reward",
            severity=severity,
            summary=(
                f"every completion of {len(rows) * case.averaged_over} steps earned {value:g}"
                + (", valid or not" if mixed else "")
                + (f", in {varied} groups whose texts differ" if varied else "")
                + ": "
                + (_EITHER if _may_be_an_end(value) else "the reward does not depend on the completion")
            ),
            evidence={"reward": value, "steps": len(rows) * case.averaged_over, "varied_groups": varied},
            rules_out=()
            if _may_be_an_end(value)
            else tuple(RuledOut(id=id_, why=_WHY) for id_ in ("dead-groups", "weak-reward")),
            advice="score two answers, one right and one wrong, with the reward function by itself",
            confidence=confidence,
        ),
    )


_EITHER = (
    "all prompts are solved (or none is, at the lower end of the scale), or the reward does not depend on the "
    "completion; nothing can be learned either way"
)
_WHY = "no completion earned another reward than any other: neither prompts nor groups can be at fault"


def _constant(rows: Sequence[Row]) -> bool:
    means = [float(row["reward/mean"] or 0.0) for row in rows]
    room = EQUAL * max(1.0, *map(abs, means))
    stds = [row.get("reward/std", row.get("reward/group_std")) for row in rows]
    return max(means) - min(means) <= room and all(std is not None and std <= room for std in stds)


def _differ(case: Case, rows: Sequence[Row]) -> bool:
    """Whether completions are known to differ, or nothing is known of it."""
    per_step = (case.settings.num_generations or 0) * (case.settings.prompts_per_step or 0)
    distinct = [
        float(row["completions/distinct"] or 0.0) for row in rows if row.get("completions/distinct") is not None
    ]
    if not distinct or not per_step:
        return True
    return max(distinct) * per_step > 1.5  # more than one text, rounding aside


def _another(case: Case, rows: Sequence[Row]) -> bool:
    """Whether an evaluation or a completion earned another reward: then it depends on something."""
    value = float(rows[0]["reward/mean"] or 0.0)
    others = [reward for _, reward in series(case.rows, "eval/reward")]
    others += [one.reward for one in case.samples if one.reward is not None]
    return any(abs(reward - value) > EQUAL * max(1.0, abs(value)) for reward in others)


def _may_be_an_end(value: float) -> bool:
    """Whether the lowest or the highest reward may be this: 0, 1, -1, or a sum of such."""
    return abs(value - round(value)) <= EQUAL


def _certainty(mixed: bool, varied: int, value: float) -> tuple[Confidence, Severity]:
    if _may_be_an_end(value):
        return "moderate", "warning"
    return ("strong" if mixed or varied >= ENOUGH else "moderate"), "error"
