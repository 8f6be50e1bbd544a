"""What a policy measured of itself before step 1 (`probe/*`): whether its draws act, are learned from, and are used.

No table of rewards tells these faults: a policy whose actions do nothing has log-probs, advantages and a gradient, too.
"""

from __future__ import annotations

from collections.abc import Sequence

from core.health.case import Case
from core.health.finding import Finding, Row, RuledOut
from core.health.steps import number

APART = 1e-3  # of a factor in (0, 1): float32 rounds a mean by 1e-7
FAR = 5.0  # standard errors: the furthest of eight means of a sound policy is 3 at most in 50 seeds


def self_probe(case: Case) -> Sequence[Finding]:
    """The faults that the row before step 1 shows by itself."""
    row: Row = case.rows[0] if case.rows else {}
    findings = (_dead_masks(row), _leaking_samples(row), _unused_heads(row))
    return [finding for finding in findings if finding is not None]


def _dead_masks(row: Row) -> Finding | None:
    """An error where no rate of a frequency box changes the picture, while the gates behind the boxes do.

    ## dead-masks

    Severity: error (certain).

    Means: of the policy `restoration`, the factors that say how far a frequency box reaches change nothing: it is empty
    (or full) whatever they are, as where its size is an integer division that always gives 0. Half of each log-prob is
    then of factors without a consequence: what they are rewarded for is noise.

    Looks at: `probe/rate_effect`, the change of a held-out picture when a rate goes from .2 to .8 (of the six rates the
    one that changes it least), exactly 0; and `probe/gate_effect`, the same of the gates behind the boxes, above 0.

    Confounder: a branch that is switched off (its weights `para1` are 0) lets neither act, as its gate shows: silent.

    Do: compute the size of the box from the size of the features it is used on, not from that of a training patch, and
    test that each factor changes the output at each resolution.
    """
    rate, gate = number(row, "probe/rate_effect"), number(row, "probe/gate_effect")
    if rate is None or gate is None or rate > 0 or gate == 0:
        return None
    return Finding(
        id="dead-masks",
        severity="error",
        summary=(
            f"a rate of the frequency boxes changes nothing when it goes from .2 to .8, and each gate behind them does "
            f"(by {gate:.2g} or more): the box does not depend on its rate, so that factor's reward is noise"
        ),
        evidence={"rate_effect": rate, "gate_effect": gate},
        advice="compute the size of the box from the size of the features it is used on",
        confidence="certain",
    )


def _leaking_samples(row: Row) -> Finding | None:
    """An error where the mean gradient of log pi over draws is not 0: it flows through the draw as well.

    ## leaking-samples

    Severity: error (strong).

    Means: samples are not detached (`rsample` in the place of `sample`). The score function's gradient has the mean 0
    over draws: that is why a reward's constant part teaches nothing. Where the draw itself depends on the weights, the
    mean is the gradient of the entropy: each update sharpens or flattens the distribution whatever the reward.

    Looks at: `probe/score_z`: over 512 draws of a held-out picture, scored as an update scores them, the mean gradient
    by each parameter of the first module's four distributions, in standard errors; of eight the furthest, above 5.

    Confounder: chance (eight means lie beyond 5 standard errors once in 200,000 runs), and distributions steep at 0 or
    1: factors are kept off both, which moves the mean, so one with such a draw is left out, and the gradient is by
    the logarithm of a parameter, whose tails are light. A distribution that is flat has the largest entropy there is,
    whose gradient is 0, leak or no leak: silent.

    Do: detach what was drawn (`with torch.no_grad()`, `sample()`), and score it as a constant.
    """
    z = number(row, "probe/score_z")
    if z is None or z <= FAR:
        return None
    why = "the gradient has a part that does not depend on the reward at all"
    return Finding(
        id="leaking-samples",
        severity="error",
        summary=(
            f"the mean gradient of log pi over draws is {z:.1f} standard errors from 0, where it must be 0: it flows "
            "through the samples as well, which are not detached"
        ),
        evidence={"score_z": z, "limit": FAR},
        rules_out=(RuledOut(id="learning-rate", why=why),),
        advice="detach what was drawn, and score it as a constant",
        confidence="strong",
    )


def _unused_heads(row: Row) -> Finding | None:
    """An error where a greedy sample did not use the means of the distributions that the trainer scores with.

    ## unused-heads

    Severity: error (certain).

    Means: inference does not use what was trained: a deterministic output is made with other factors (constants) than
    the means of the policy's distributions. Greedy evaluations then tell nothing of what the policy gradient learned,
    and a restored photograph has none of it.

    Looks at: `probe/greedy_gap`, the largest distance on two held-out pictures of a factor that a greedy sample used
    from the mean that the trainer computes, above 0.001.

    Confounder: heads whose means are those constants, frozen or not trained yet: nothing is ignored then, the gap is 0
    and the rule silent.

    Do: let inference compute the distributions and take their means.
    """
    gap = number(row, "probe/greedy_gap")
    if gap is None or gap <= APART:
        return None
    return Finding(
        id="unused-heads",
        severity="error",
        summary=(
            f"a greedy sample used a factor that is {gap:.2g} from the mean of the policy's distribution: inference "
            "ignores the heads that are trained, so greedy evaluations do not show what they learned"
        ),
        evidence={"greedy_gap": gap, "limit": APART},
        advice="let inference compute the distributions and take their means",
        confidence="certain",
    )
