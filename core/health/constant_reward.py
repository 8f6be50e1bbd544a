"""Does the reward depend on the completion at all?"""

from __future__ import annotations

from collections.abc import Sequence

from core.health.case import Case
from core.health.finding import Confidence, Finding, Row, RuledOut, steps_of
from core.health.group_outcomes import DIGITS, groups_of, level_shares
from core.health.trend import series

ENOUGH = 10  # steps: fewer may be luck
EQUAL = 1e-6  # relative: a std or a difference of means that is rounding, of fp32 too


def constant_reward(case: Case) -> Sequence[Finding]:
    """An error where completions that differ earned one and the same reward, all of them, on at least ten steps.

    Silent where all were invalid, or said the same: equal rewards are right then, and the policy is what is wrong.
    """
    rows = [row for row in steps_of(case.rows) if row.get("reward/mean") is not None]
    if len(rows) * case.averaged_over < ENOUGH or not _constant(rows):
        return ()
    valid = [share for _, share in series(rows, "completions/valid")]
    groups = groups_of(case.samples)
    if (valid and max(valid) == 0) or not _differ(case, rows) or len(level_shares(groups)) > 1:
        return ()
    mixed = bool(valid) and min(valid) < 1
    value = round(float(rows[0]["reward/mean"] or 0.0), DIGITS)
    varied = sum(group.texts > 1 for group in groups)
    return (
        Finding(
            id="constant-reward",
            severity="error",
            summary=(
                f"every completion of {len(rows) * case.averaged_over} steps earned {value:g}"
                + (", valid or not" if mixed else "")
                + (f", in {varied} groups whose texts differ" if varied else "")
                + ": "
                + ("the reward does not depend on the completion" if mixed or value else _NOTHING)
            ),
            evidence={"reward": value, "steps": len(rows) * case.averaged_over, "varied_groups": varied},
            rules_out=tuple(RuledOut(id=id_, why=_WHY) for id_ in ("dead-groups", "weak-reward")),
            advice="score two answers, one right and one wrong, with the reward function by itself",
            confidence=_confidence(mixed, varied, value),
        ),
    )


_NOTHING = "the reward is broken, or no prompt can be solved; nothing can be learned either way"
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


def _confidence(mixed: bool, varied: int, value: float) -> Confidence:
    return "strong" if mixed or (varied >= ENOUGH and value) else "moderate"
