"""Does the supervised loss fall? Where not, its weight, its rate or its data teach nothing, or nothing is left.

## supervised-flat

Severity: warning (moderate).

Means: the supervised loss does not fall: its weight, its rate or its data teach nothing, or nothing is left to learn.
Document 003's guide suggests a larger weight, a longer warm-up and a smaller batch.

Looks at: `supervised/loss` over 20 steps or more: a fall by a tenth is excluded by 3 standard errors, at a level
above 0.1 nats.

Confounder: answers that cannot be learned better (an entropy of their own).

Do: look at `grad_share/supervised` first. More supervised steps before GRPO show whether the answers can be learned
at all; a smaller batch only adds noise.
"""

from __future__ import annotations

from collections.abc import Sequence

from core.health.case import Case
from core.health.finding import Decider, Finding, steps_of
from core.health.trend import Trend, series, trend

ENOUGH = 20  # steps with a supervised loss
FALLS = 0.1  # of its first level: a fall that would be worth the name
LEARNED = 0.1  # nats a token: below this there is little left to learn
SURE = 3.0  # standard errors between what it does and such a fall


def supervised_flat(case: Case) -> Sequence[Finding]:
    """A warning where the loss clearly does not fall by a tenth over its steps, from a level worth learning at."""
    points = series(steps_of(case.rows), "supervised/loss")
    if len(points) < ENOUGH or (line := trend(points)) is None:
        return ()
    span = points[-1][0] - points[0][0]
    middle = sum(value for _, value in points) / len(points)
    start = middle - line.slope * span / 2
    if start < LEARNED or (line.slope - SURE * line.se) * span < -FALLS * start:
        return ()  # nothing is left to learn; or it falls, or is too noisy to tell that from none
    return (_finding(case, line, start, span),)


def _finding(case: Case, line: Trend, start: float, span: float) -> Finding:
    weight = case.settings.supervised_weight
    end = start + line.slope * span
    more = () if not weight else (f"supervised_weight={min(0.8, 2 * weight):g}",)
    return Finding(
        id="supervised-flat",
        severity="warning",
        summary=(
            f"the supervised loss does not fall: {start:.3g} to {end:.3g} nats a token over {span:.0f} steps (slope "
            f"{line.slope:.1e} a step, standard error {line.se:.1e})"
        ),
        evidence={
            "start": start, "end": end, "slope": line.slope, "se": line.se, "steps": span,
            **({} if weight is None else {"supervised_weight": weight}),
        },
        suggest=more,
        advice=(
            "first see that its gradient counts (grad_share/supervised); more supervised steps before GRPO (an sft "
            "stage) say whether the answers can be learned at all; a smaller batch only makes the curve noisier"
        ),
        confidence="moderate",
        decider=Decider(
            question="do the answers get learned when nothing else pulls?",
            overrides=(*more, "policy_weight=0"),
            expects=(f"supervised/loss < {(1 - FALLS) * start:.3g}",),
        ),
    )  # fmt: skip
