"""Losses beside the policy's: a consistency loss that rises, a supervised loss that does not fall."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from core.health.case import Case
from core.health.finding import Decider, Finding, RuledOut
from core.health.statistics import Trend, chance_above, series, shown_p, trend

ENOUGH = 20  # steps
SIGNIFICANT = 1e-3
RISEN = 1.2  # the last third over the first: less is not worth a word


def consistency(case: Case) -> Sequence[Finding]:
    """A warning where the consistency loss rises by a fifth or more, with p < 0.001 over steps.

    ## consistency-rising

    Severity: warning (moderate).

    Means: the consistency loss rises: the outputs that the term regularises diverge, and the term is outweighed.
    Document 003's guide suggests a smaller weight ("too strong"); that is ruled out, because a term that had its way
    would be low.

    Looks at: the consistency loss over 20 steps or more: p < 0.001, the last third a fifth above the first.

    Confounder: prompts that become harder for the term.

    Do: look at `grad_share/consistency`: a share under a hundredth is a term that can be left out; else a larger
    weight.
    """
    points = series(case.steps, "consistency/loss")
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
                "the regularised outputs diverge"
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


FALLS = 0.1  # of its first level: a fall that would be worth the name
LEARNED = 0.1  # nats a token: below this there is little left to learn
SURE = 3.0  # standard errors between what it does and such a fall


def supervised_flat(case: Case) -> Sequence[Finding]:
    """A warning where the supervised loss clearly does not fall by a tenth although there is something to learn.

    ## supervised-flat

    Severity: warning (moderate).

    Means: the supervised loss does not fall: its weight, its rate or its data teach nothing, or nothing is left to
    learn. Document 003's guide suggests a larger weight, a longer warm-up and a smaller batch.

    Looks at: `supervised/loss` over 20 steps or more: a fall by a tenth is excluded by 3 standard errors, at a level
    above 0.1 nats.

    Confounder: answers that cannot be learned better (an entropy of their own).

    Do: look at `grad_share/supervised` first. More supervised steps before GRPO show whether the answers can be learned
    at all; a smaller batch only adds noise.
    """
    points = series(case.steps, "supervised/loss")
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
            f"the supervised loss does not fall: {start:.3g} to {end:.3g} {case.settings.per_factor} over "
            f"{span:.0f} steps (slope {line.slope:.1e} a step, standard error {line.se:.1e})"
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
