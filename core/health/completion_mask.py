"""Does the loss learn from the tokens that were drawn? A mask that is off by one loses the end token, or the first.

Both counts are integers of the same completions, so any difference is a fault. Not here: which tokens (a count says
only how many, so a mask that is shifted at both ends is not seen).

## completion-mask

Severity: error (certain).

Means: the loss learned from other tokens than were drawn: the completion mask is off.

Looks at: `policy/tokens` (what the loss learned from) and `policy/tokens_drawn` (what was drawn in the same
completions; those cut off are left out where `mask_truncated_completions` says so). Both are integers, so any
difference is a fault.

Confounder: none among sound runs. What it cannot see: a mask that is shifted at both ends (starts one token late and
ends one late, or the other way round) counts the right number of wrong tokens; no other rule sees it either.

Do: let the mask of a completion start at its first drawn token and end with its end token.

Measured: 10 of 10 planted faults. A mask that starts one token late lost exactly 1 token a completion (327 of 343 in
16 completions).
"""

from __future__ import annotations

from collections.abc import Sequence

from core.health.case import Case
from core.health.finding import Decider, Finding, steps_of

ROUNDING = 1e-6  # of a count: means over several optimiser steps


def completion_mask(case: Case) -> Sequence[Finding]:
    """An error where the loss counted other tokens than were drawn in the completions it learned from."""
    rows = [
        (int(row["step"] or 0), row.get("policy/tokens"), row.get("policy/tokens_drawn")) for row in steps_of(case.rows)
    ]
    known = [(step, counted, drawn) for step, counted, drawn in rows if counted is not None and drawn is not None]
    odd = [one for one in known if abs(one[1] - one[2]) > ROUNDING * max(1.0, one[2])]
    if not odd:
        return ()
    step, counted, drawn = odd[0]
    missing = sum(d - c for _, c, d in odd) / len(odd)
    each = _each(case, missing)
    return (
        Finding(
            id="completion-mask",
            severity="error",
            summary=(
                f"the loss learned from {counted:g} tokens on step {step}, of {drawn:g} drawn, and was wrong on "
                f"{len(odd)} of {len(known)} steps{each}: its completion mask is off"
            ),
            evidence={"step": step, "counted": counted, "drawn": drawn, "odd_steps": len(odd), "steps": len(known),
                      "missing_a_step": missing},
            advice="the mask of a completion starts at its first drawn token and ends with its end token",
            confidence="certain",
            decider=Decider(question="with one completion of known length, how many tokens does the loss count?"),
        ),
    )  # fmt: skip


def _each(case: Case, missing: float) -> str:
    k, prompts = case.settings.num_generations, case.settings.prompts_per_step
    return f" ({missing / (k * prompts):.2g} a completion)" if k and prompts else ""
