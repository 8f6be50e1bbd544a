"""Does the policy's loss rise over the run? Document 003's guide takes that for trouble; at a ratio of 1 it is nothing.

There the loss is minus the mean advantage: 0 by construction where advantages are centred, whatever is learned.

## policy-loss

Severity: warning (weak); info (certain) at a ratio of 1.

Means: the policy's loss rises over the run. The value is a poor measure: at a ratio of 1 it is minus the mean
advantage and says nothing of learning. Document 003's guide takes a rise for trouble (see the
[glossary](glossary.md#documents)) and suggests the rate x 0.4, `max_grad_norm` and `epsilon` halved.

Looks at: `policy/loss` over 20 steps or more: trend p < 0.001, risen by one standard deviation around its line.

Confounder: a ratio of 1 (one update per rollout): the rise is then noise of the mean advantage.

Do: look at the reward and at `eval/reward`. Of the guide's changes the rate is the likeliest; under Adam a tighter
norm changes little; epsilon acts only after a first update on a rollout.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, stdev

from core.health.case import Case
from core.health.finding import Decider, Finding, RuledOut
from core.health.trend import Trend, chance_above, series, shown_p, trend

ENOUGH = 20  # steps
SIGNIFICANT = 1e-3
RISEN = 1.0  # standard deviations around its line that it must have risen by, over the run
NEAR_ONE = 0.01


def policy_loss(case: Case) -> Sequence[Finding]:
    """A warning where it rises (p < 0.001) and could mean something; an info where it rises and cannot."""
    points = series(case.stage_rows, "policy/loss")
    if len(points) < ENOUGH or (line := trend(points)) is None or line.slope <= 0:
        return ()
    p, rise = chance_above(line.z), line.slope * (points[-1][0] - points[0][0])
    left = [value - line.slope * step for step, value in points]
    if p >= SIGNIFICANT or rise < RISEN * stdev(left):
        return ()
    return (_finding(case, points, line, p),)


def _at_ratio_one(case: Case) -> bool:
    ratios = [value for _, value in series(case.stage_rows, "policy/ratio_max")]
    if ratios:
        return max(abs(value - 1.0) for value in ratios) < NEAR_ONE
    return case.settings.updates_per_rollout == 1 and not case.settings.old_is_reference


def _finding(case: Case, points: Sequence[tuple[float, float]], line: Trend, p: float) -> Finding:
    third = max(1, len(points) // 3)
    early, late = fmean(value for _, value in points[:third]), fmean(value for _, value in points[-third:])
    evidence = {"early": early, "late": late, "slope": line.slope, "se": line.se, "p": p, "steps": len(points)}
    said = f"the policy's loss rose from {early:.3g} to {late:.3g} over {len(points)} steps ({shown_p(p)})"
    if _at_ratio_one(case):
        why = "old and new log-probs are equal, so its value is minus the mean advantage and tells nothing of learning"
        return Finding(
            id="policy-loss",
            severity="info",
            summary=f"{said}, which says nothing: {why}",
            evidence=evidence,
            rules_out=(RuledOut(id="policy-loss-rising", why=why),),
            advice="look at the reward and at eval/reward instead",
            confidence="certain",
        )
    rate, norm = case.settings.learning_rate, case.settings.max_grad_norm
    suggest = [] if rate is None else [f"learning_rate={0.4 * rate:.1g}"]
    suggest += [f"max_grad_norm={0.5 * (norm or 1.0):g}", f"epsilon={0.5 * (case.settings.epsilon or 0.2):g}"]
    return Finding(
        id="policy-loss",
        severity="warning",
        summary=f"{said}: later updates push against its advantages, or its ratio is not what it should be",
        evidence=evidence,
        suggest=tuple(suggest),
        advice=(
            "in this order: the rate is the likeliest; a tighter max_grad_norm changes little under Adam, which "
            "divides by the gradient's own size; a tighter epsilon acts only after a first update on a rollout"
        ),
        confidence="weak",
        decider=Decider(
            question="does the reward rise where the loss does not?",
            overrides=tuple(suggest[:1]),
            expects=("policy/loss < 0.01",),
        ),
    )
