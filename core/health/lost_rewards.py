"""Steps whose mean reward was recorded and is no number. Not here: completions left out of the mean (signal).

## lost-rewards

Severity: error where no step has a finite mean reward, warning where some have none (certain).

Means: the mean reward of a step was recorded and is not a finite number: a reward function gave NaN, infinity or
nothing.

Looks at: `reward/mean`. Numbers of 1e100 or more count as not finite, with a note.

Confounder: steps that count their completions without a reward (`reward/missing`): those are for `missing-rewards`.

Do: call the reward functions on the completions of such a step and make each return a finite number: one NaN in a
group makes the advantages of the whole group NaN.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from core.health.case import Case
from core.health.finding import Finding, Row, steps_of

REWARD = "reward/mean"


def lost_rewards(case: Case) -> Sequence[Finding]:
    """An error where no step has a reward that is a number, a warning where some have none; silent without rewards.

    A step that counts its completions without a reward is for missing-rewards.
    """
    rows = [row for row in steps_of(case.rows) if REWARD in row]
    lost = [row for row in rows if _is_lost(row)]
    if not lost:
        return ()
    every, first = len(lost) == len(rows), int(lost[0]["step"] or 0)
    where = f"on {len(lost)} of {len(rows)} steps" if len(rows) > 1 else "on the only step"
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
