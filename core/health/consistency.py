"""Does the consistency loss rise? Then the policy drifts from what the term holds together, and the term loses.

## consistency-rising

Severity: warning (moderate).

Means: the consistency loss rises: the policy drifts apart from what the term holds together, and the term is
outweighed. Document 003's guide suggests a smaller weight ("too strong"); that is ruled out, because a term that had
its way would be low.

Looks at: the consistency loss over 20 steps or more: p < 0.001, the last third a fifth above the first.

Confounder: prompts that become harder for the term.

Do: look at `grad_share/consistency`: a share under a hundredth is a term that can be left out; else a larger weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from core.health.case import Case
from core.health.finding import Decider, Finding, RuledOut, steps_of
from core.health.trend import chance_above, series, shown_p, trend

ENOUGH = 20  # steps
SIGNIFICANT = 1e-3
RISEN = 1.2  # the last third over the first: less is not worth a word


def consistency(case: Case) -> Sequence[Finding]:
    """A warning where it rises by a fifth and more, with p < 0.001 over steps."""
    points = series(steps_of(case.rows), "consistency/loss")
    if len(points) < ENOUGH or (line := trend(points)) is None:
        return ()
    third = len(points) // 3
    early, late = fmean(value for _, value in points[:third]), fmean(value for _, value in points[-third:])
    p, weight = chance_above(line.z), case.settings.consistency_weight
    if p >= SIGNIFICANT or early <= 0 or late < RISEN * early:
        return ()
    return (
        Finding(
            id="consistency-rising",
            severity="warning",
            summary=(
                f"the consistency loss rose from {early:.3g} to {late:.3g} over {len(points)} steps ({shown_p(p)}): "
                "what it holds together drifts apart"
            ),
            evidence={
                "early": early, "late": late, "p": p, "steps": len(points),
                **({} if weight is None else {"consistency_weight": weight}),
            },
            rules_out=(
                RuledOut(
                    id="consistency-too-strong",
                    why="a term that had its way would be low: one that rises is outweighed, or pulls the wrong way",
                ),
            ),
            suggest=(f"consistency_weight={2 * weight:g}",) if weight else (),
            advice="look at grad_share/consistency: a share under a hundredth is a term one may as well leave out",
            confidence="moderate",
            decider=Decider(
                question="does the reward need the term at all?",
                overrides=("consistency_weight=0",),
            ),
        ),
    )  # fmt: skip
