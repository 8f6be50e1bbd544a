"""Does a gradient reach any weight? A loss that is not 0 and a gradient that always is: nothing is trained.

Not here: losses that are 0 as well (core.health.numerical), and rates that are too small (core.health.learning_rate).

## no-gradient

Severity: error (certain) where a KL that stays below 1e-7 agrees; else warning (moderate).

Means: the gradient norm is exactly 0 on all steps (ten or more) and the loss is not, on half of them or more: no
trained weight is reached.

Looks at: `grad_norm`, `loss` and `kl`. It rules out `learning-rate`: no rate moves a weight that has no gradient.

Confounder: trainers that have no norm and write 0: a warning only. Silent where the KL grew.

Do: count the parameters that the optimiser holds, and look at one of them before and after a step.
"""

from __future__ import annotations

from collections.abc import Sequence

from core.health.case import Case
from core.health.finding import Finding, RuledOut
from core.health.first_updates import values_of
from core.health.learning_rate import UNMOVED
from core.health.onset import number

ENOUGH = 10  # steps
MOST = 0.5  # of them have a loss that is not 0
NONE = 1e-8  # a loss: below it lies rounding


def no_gradient(case: Case) -> Sequence[Finding]:
    """An error where the gradient is exactly 0 on every step, losses are not, and a KL says that nothing moved.

    A warning where no KL is known: some trainers do not log the norm and write 0. Silent where the KL grew: they do.
    """
    rows = [row for row in case.stage_rows if number(row, "grad_norm") is not None and number(row, "loss") is not None]
    felt = [row for row in rows if abs(row["loss"] or 0.0) > NONE]
    if len(rows) * case.averaged_over < ENOUGH or any(row["grad_norm"] for row in rows) or len(felt) < MOST * len(rows):
        return ()
    kls = values_of(rows, "kl")
    if kls and max(kls) > UNMOVED:
        return ()
    why = f"the gradient is exactly 0 on all {len(rows)} rows, so no rate moves anything"
    return (
        Finding(
            id="no-gradient",
            severity="error" if kls else "warning",
            summary=(
                f"the gradient norm is exactly 0 on all {len(rows)} rows while the loss is not (on {len(felt)})"
                + (f", and the KL to the start stays at {max(kls):.1g}" if kls else "")
                + ": no gradient reaches a weight that is trained (a frozen or unregistered adapter, a detached loss)"
                + ("" if kls else ", or the log has no norm and writes 0")
            ),
            evidence={"rows": len(rows), "with_loss": len(felt), **({"kl_max": max(kls)} if kls else {})},
            rules_out=(RuledOut(id="learning-rate", why=why),),
            advice="count the parameters that the optimiser holds, and look at one of them before and after a step",
            confidence="certain" if kls else "moderate",
        ),
    )
