"""Did the learning rate end before the run did? Updates at a rate of exactly 0 move nothing.

Not here: runs that had no other rate (core.health.signal).

## rate-zero

Severity: warning (strong).

Means: the last tenth of the steps or more, and at least ten, had a learning rate of exactly 0: a schedule that is
shorter than the run, or one that a resumed run took up with another length.

Looks at: `learning_rate`.

Confounder: a log that rounds small rates.

Do: give the schedule the length of the run (`lr_scheduler_steps`, `max_steps`), or end the run there.
"""

from __future__ import annotations

from collections.abc import Sequence

from core.health.case import Case
from core.health.finding import Finding
from core.health.onset import number

ENOUGH = 10  # steps at the end: a schedule's own last ones are fewer
SHARE = 0.1  # of the run


def rate_zero(case: Case) -> Sequence[Finding]:
    """A warning where the last tenth of a run or more, and at least ten steps, had a rate of exactly 0."""
    rows = [row for row in case.stage_rows if number(row, "learning_rate") is not None]
    used = [index for index, row in enumerate(rows) if row["learning_rate"]]
    if not used:
        return ()
    still = rows[used[-1] + 1 :]
    if len(still) * case.averaged_over < ENOUGH or len(still) < SHARE * len(rows):
        return ()
    first, last = int(still[0].get("step") or 0), rows[used[-1]]["learning_rate"] or 0.0
    return (
        Finding(
            id="rate-zero",
            severity="warning",
            summary=(
                f"the learning rate is exactly 0 from step {first} on ({len(still)} of {len(rows)} rows; {last:.2g} "
                "before): nothing was learned since. A schedule that is shorter than the run, one that a resumed run "
                "took up with another length, or a log that rounds small rates"
            ),
            evidence={"first_step": first, "rows": len(still), "of": len(rows), "last_rate": last},
            advice="give the schedule the length of the run (lr_scheduler_steps, max_steps), or end the run there",
            confidence="strong",
        ),
    )
