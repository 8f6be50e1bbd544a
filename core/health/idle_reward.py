"""A reward function that never paid anything while another one did ever more: is it broken, or never earned?

## idle-reward

Severity: info (moderate).

Means: a reward function (`rewards/NAME`) paid exactly 0 on all steps, 20 or more, while another's rises (p < 0.001):
what is learned is the other function alone.

Looks at: the `rewards/NAME` columns.

Confounder: never earned, a penalty that was never due, or a parser that fails on everything: the rule cannot tell
these apart.

Do: call that function by itself on an answer known to be right.
"""

from __future__ import annotations

from collections.abc import Sequence

from core.health.case import Case
from core.health.finding import Finding
from core.health.first_updates import values_of
from core.health.trend import chance_above, series, trend

ENOUGH = 20  # steps
SIGNIFICANT = 1e-3
PREFIX = "rewards/"


def idle_reward(case: Case) -> Sequence[Finding]:
    """An info where a column of one reward function is 0 on every step and another's rises (p < 0.001)."""
    rows = case.stage_rows
    names = sorted({name for row in rows for name in row if name.startswith(PREFIX)})
    idle = [name for name in names if len(found := values_of(rows, name)) >= ENOUGH and not any(found)]
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
