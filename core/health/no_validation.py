"""Was a run ever looked at on prompts it does not train on?"""

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
