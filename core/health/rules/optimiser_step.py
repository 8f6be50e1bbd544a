"""An optimiser step in the wrong order: a gradient clipped before it is there, old log-probs taken after the update.

Both leave an exact number behind: a norm of 0 beside gradients that were measured, a ratio of 1 where it has moved.
"""

from __future__ import annotations

from collections.abc import Sequence

from core.health.case import Case
from core.health.finding import Decider, Finding, Row, RuledOut
from core.health.steps import acted, number

ENOUGH = 5  # steps: of one, a ratio's largest value can be that of the first update


def clip_before_backward(case: Case) -> Sequence[Finding]:
    """An error where the norm that was clipped is 0 on every update, while shares of the gradient were measured.

    ## clip-before-backward

    Severity: error (certain).

    Means: the gradient is clipped before `backward` computes it: nothing is ever clipped, and the norm in the log is
    that of no gradient, 0. Under Adam, which divides by the gradient's own size, the run may look well; one exploded
    gradient is enough.

    Looks at: `grad_norm`, exactly 0 on every step with an update, and `grad_share/*`, measured by passes of their own
    and there only where a gradient is not 0, on one of those steps at least.

    Confounder: steps that nothing is learned from (dead groups, a loss of weight 0) have a norm of 0 and no shares:
    silent, as for a log without shares, whose trainer may have no norm and write 0 (`no-gradient`).

    Do: `loss.backward()`, then `clip_grad_norm_`, then `optimizer.step()`.
    """
    rows = [row for row in case.stage_rows if row.get("update") == 1 and number(row, "grad_norm") is not None]
    pulled = [row for row in rows if _has_gradient(row)]
    if not pulled or any(row["grad_norm"] for row in rows):
        return ()
    why = "shares of it were measured on the same steps, so there is one"
    return (
        Finding(
            id="clip-before-backward",
            severity="error",
            summary=(
                f"the gradient norm is exactly 0 on all {len(rows)} updates, and on {len(pulled)} of them its terms' "
                "gradients were measured and are not: it is clipped before it is computed, so it never is"
            ),
            evidence={"updates": len(rows), "measured": len(pulled)},
            rules_out=(RuledOut(id="no-gradient", why=why), RuledOut(id="zero-loss", why=why)),
            advice="call backward, then clip the gradient, then step",
            confidence="certain",
        ),
    )


def _has_gradient(row: Row) -> bool:
    return any(name.startswith("grad_share/") and (value or 0.0) > 0 for name, value in row.items())


def frozen_log_probs(case: Case) -> Sequence[Finding]:
    """An error where the ratio is exactly 1 on every step although each rollout is learned from more than once.

    ## frozen-log-probs

    Severity: error (certain).

    Means: old and new log-probs are the same numbers: the old ones are taken from the update's own forward, detached.
    The ratio is 1 on every optimiser step, so the clip never acts, and a rollout's later updates learn from it as if
    the policy that drew it had not moved.

    Looks at: `policy/ratio_max`, exactly 1 on every step whose updates moved weights (a rate and a gradient above 0),
    five or more, with no dead group, where a rollout has two optimiser steps or more (`num_iterations`, `minibatches`).
    After the first of them the ratio is not 1: the weights have moved.

    Confounder: one update per rollout: the ratio is 1 by construction, old log-probs that are the new ones change
    nothing, and no metric can show them: silent. A rate of 0 or a gradient of 0 moves nothing; a step with a dead group
    may have had one update only: such steps do not count. A log of another trainer may print 1.0000: silent.

    Do: keep the log-probs that were recorded while sampling (or scored once, before a rollout's first update), and use
    those in each of its updates.
    """
    if not case.stages or (case.settings.updates_per_rollout or 1) < 2:
        return ()
    rows = [
        row
        for row in case.stage_rows
        if acted(row)
        and number(row, "policy/ratio_max") is not None
        and row.get("grad_norm") != 0
        and not row.get("groups/dead")
        and not row.get("groups/discarded")
    ]
    if len(rows) < ENOUGH or any(row["policy/ratio_max"] != 1 for row in rows):
        return ()
    updates = case.settings.updates_per_rollout
    return (
        Finding(
            id="frozen-log-probs",
            severity="error",
            summary=(
                f"the largest importance ratio is exactly 1 on all {len(rows)} steps, though each rollout is learned "
                f"from {updates} times: old log-probs are those of the update itself, so the clip never acts"
            ),
            evidence={"steps": len(rows), "updates_per_rollout": float(updates or 0)},
            rules_out=(RuledOut(id="inert-clip", why="the ratio cannot be 1 after a first update"),),
            advice="take old log-probs before a rollout's first update, and keep them for all of its updates",
            confidence="certain",
            decider=Decider(
                question="does the ratio leave 1 once old log-probs are kept from before the first update?",
                expects=("policy/ratio_max > 1.000001",),
            ),
        ),
    )
