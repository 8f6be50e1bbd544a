"""Does the reward depend on the completion at all?

## constant-reward

Severity: error (strong) where valid and invalid completions earned the same, or where a reward function's own column
(`rewards/NAME`) differs from step to step and the sum does not; else warning (moderate).

Means: every completion of ten steps or more earned one and the same reward, although completions differ: the reward
does not depend on the completion.

Looks at: `reward/std` (or `reward/group_std`) of 0 up to fp32 rounding on every step, and one mean over all of them.
It replaces `dead-groups` and `no-updates`.

Confounder: texts that differ may all have the form that is paid for (0.1, say) and none the answer; a whole number
(0, 1, -1, ...) may be an end of the scale, with every prompt solved or none: both are warnings. Silent where nothing
was valid, or all completions are one text (equal rewards are right then), and where an evaluation or a completion
earned another reward, which refutes it. But a training reward that is always 0.37, no end of a scale, while
evaluations differ among themselves is a warning: the training reward is broken, or all training prompts earn the same
part.

Do: score two answers, one right and one wrong, with the reward function by itself.

Measured: 10 of 10 planted faults. `grpoctl run p31 --profile tiny --seed 1 'faults=[constant-reward]'`: the first
finding, "every completion of 96 steps earned 0.5, valid or not, in 191 groups whose texts differ".
"""

from __future__ import annotations

from collections.abc import Sequence

from core.health.case import Case
from core.health.finding import Confidence, Finding, Row, RuledOut, Severity
from core.health.group_outcomes import DIGITS, groups_of
from core.health.trend import series

ENOUGH = 10  # steps: fewer may be luck
EQUAL = 1e-6  # relative: a std or a difference of means that is rounding, of fp32 too


def constant_reward(case: Case) -> Sequence[Finding]:
    """An error where completions that differ earned one and the same reward, all of them, on at least ten steps.

    A warning where valid and invalid ones are not known to have earned the same, or where it may be an end of its
    scale, a whole number: all prompts may be solved, none, or none beyond the form that every completion is paid
    for. Silent where all were invalid, or said the same: equal rewards are right then, and the policy is what is
    wrong. Silent too where anything else in the run earned another reward, an evaluation or a completion; but where
    evaluations differ among themselves and training always paid one number that is no end of a scale, that is a
    warning.
    """
    rows = [row for row in case.stage_rows if row.get("reward/mean") is not None]
    if len(rows) * case.averaged_over < ENOUGH or not _constant(rows):
        return ()
    valid = [share for _, share in series(rows, "completions/valid")]
    groups = groups_of(case.samples)
    if (valid and max(valid) == 0) or not _differ(case, rows) or _other_completions(case, rows):
        return ()
    value = round(float(rows[0]["reward/mean"] or 0.0), DIGITS)
    if _evaluations(case, other_than=value):
        return _in_training_only(case, len(rows), value)
    mixed = bool(valid) and min(valid) < 1
    varied, part = sum(group.texts > 1 for group in groups), _part_that_differs(rows)
    confidence, severity = _certainty(mixed or part is not None, value)
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


def _other_completions(case: Case, rows: Sequence[Row]) -> bool:
    """Whether a completion earned another reward: then it depends on something."""
    value = float(rows[0]["reward/mean"] or 0.0)
    return any(not _equal(one.reward, value) for one in case.samples if one.reward is not None)


def _evaluations(case: Case, *, other_than: float) -> bool:
    """Whether an evaluation had another reward."""
    return any(not _equal(reward, other_than) for _, reward in series(case.rows, "eval/reward"))


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


def _certainty(mixed: bool, value: float) -> tuple[Confidence, Severity]:
    return ("strong", "error") if mixed and not _may_be_an_end(value) else ("moderate", "warning")
