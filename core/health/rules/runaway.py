"""A column that leaves its range for good: entropy that is used up, gradients that explode.

What is here: what a log without limits of ours says by its numbers alone. What is not: a run's own guards
(policy_collapse), single spikes and gradients that are not finite (numerical).
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median

from core.health.case import Case
from core.health.finding import Decider, Finding, Row, steps_of
from core.health.steps import ends_of, number

ROWS = 6  # fewer show no course
USED_UP = 0.05  # nats: hardly a token is still drawn
OF_START = 0.2  # of the entropy at the start: a policy that began as sure is not one that lost it
ROSE = 0.05  # of the reward's early level: what an entropy may be spent on
EXPLODED = 100.0  # times the gradient norm's early level
ABSOLUTE = 10.0  # a gradient norm below that is no explosion, however small it began


def runaway(case: Case) -> Sequence[Finding]:
    """The findings of entropy and of gradients, one each at most.

    ## entropy-collapse

    Severity: error (strong) where the reward fell to half or less as well; warning (strong), moderate without a reward.

    Means: the policy got sure of its tokens before it learned: groups become equal, nothing is left to compare.

    Looks at: `entropy` at the end (a fifth of the rows, six rows or more) below 0.05 nats and below a fifth of its
    start, while `reward/mean` rose by less than a twentieth of its early level.

    Confounder: a policy that solves its task gets sure of it as well: with a reward that rose, nothing is said. One
    that was as sure from the start lost nothing.

    Do: a smaller learning rate, a higher `epsilon_high` (DAPO), an entropy bonus; data it cannot solve yet.

    ## grad-explosion

    Severity: error (strong).

    Means: gradients grew by two orders of magnitude and stayed there (`numerical`: they ended in no number).

    Looks at: the median `grad_norm` of the last fifth of the rows (six or more) against the first, at least 100 times
    it and at least 10.

    Confounder: single spikes (`grad-norm`); a norm that began at nearly 0 and is now usual.

    Do: a smaller learning rate, `max_grad_norm`; look at the first row that left: what else changed there?
    """
    rows = steps_of(case.rows)
    return [finding for finding in (_entropy(rows), _gradient(rows)) if finding is not None]


def _entropy(rows: Sequence[Row]) -> Finding | None:
    start, end = ends_of(rows, "entropy", least=ROWS)
    if not start or median(end) >= min(USED_UP, OF_START * median(start)):
        return None
    early, late = ends_of(rows, "reward/mean", least=ROWS)
    if early and fmean(late) - fmean(early) > ROSE * abs(fmean(early)):
        return None
    fell = bool(early) and fmean(early) > 0 and fmean(late) <= fmean(early) / 2
    reward = f", and the reward went from {fmean(early):.3g} to {fmean(late):.3g}" if early else ""
    return Finding(
        id="entropy-collapse",
        severity="error" if fell else "warning",
        summary=f"the entropy fell from {median(start):.3g} to {median(end):.3g} nats{reward}: completions get equal",
        evidence={
            "entropy_start": median(start), "entropy_end": median(end),
            **({"reward_start": fmean(early), "reward_end": fmean(late)} if early else {}),
        },
        advice="a smaller learning rate or a higher upper clip keeps it; more of the same steps cannot bring it back",
        confidence="strong" if early else "moderate",
        decider=Decider(question="does it stay with a third of the learning rate?", expects=("entropy > 0.1",)),
    )  # fmt: skip


def _gradient(rows: Sequence[Row]) -> Finding | None:
    start, end = ends_of(rows, "grad_norm", least=ROWS)
    if not start or median(end) < max(ABSOLUTE, EXPLODED * median(start)):
        return None
    first = next(
        (int(row["step"] or 0) for row in rows if (number(row, "grad_norm") or 0.0) > EXPLODED * median(start)), 0
    )
    return Finding(
        id="grad-explosion",
        severity="error",
        summary=f"the gradient norm grew from {median(start):.3g} to {median(end):.3g} for good from step {first}",
        evidence={"grad_norm_start": median(start), "grad_norm_end": median(end), "first_step": first},
        advice="a smaller learning rate, and max_grad_norm; what else changed on that step names the cause",
        confidence="strong",
        decider=Decider(question="do gradients stay with a third of the learning rate?", expects=("grad_norm < 10",)),
    )
