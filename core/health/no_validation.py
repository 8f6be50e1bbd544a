"""Was a run ever looked at on prompts it does not train on?

## no-validation

Severity: info (certain).

Means: more than 50 steps and not one evaluation. P30's log is such a run.

Looks at: whether any row has an `eval/` metric.

Confounder: evaluations that were made and logged elsewhere.

Do: keep prompts apart from training and evaluate on them every so many steps (`evaluation.eval_steps`).
"""

from __future__ import annotations

from collections.abc import Sequence

from core.health.case import Case
from core.health.finding import Finding, steps_of

MANY = 50  # steps: a shorter run may be a trial


def no_validation(case: Case) -> Sequence[Finding]:
    """An info where more than MANY steps were trained and no row has an evaluation."""
    rows = steps_of(case.rows)
    steps = len(rows) * case.averaged_over
    if steps <= MANY or any(name.startswith("eval/") for row in case.rows for name in row):
        return ()
    return (
        Finding(
            id="no-validation",
            severity="info",
            summary=(
                f"{steps} steps and no evaluation: whether anything was learned beyond the training prompts, and which "
                "checkpoint is the best, cannot be said"
            ),
            evidence={"steps": steps},
            suggest=("evaluation.eval_steps=10",),
            advice="keep prompts apart from training and evaluate on them every so many steps",
            confidence="certain",
        ),
    )
