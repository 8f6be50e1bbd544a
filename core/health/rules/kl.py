"""What the KL term does: how much of the gradient it takes, and whether its estimator has the right one.

Never by its share of the loss: at a ratio of 1 centred advantages make the policy's loss about 0 whatever its gradient
is, so the KL is nearly all of any loss (document 001 read 93 % of it as a diagnosis).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median, stdev

from core.health.case import Case
from core.health.finding import Decider, Finding, Row, RuledOut
from core.health.statistics import series
from core.health.steps import number

MEASURED = 3  # steps with gradient shares: fewer say nothing
REACH = 0.01  # nats a token: the KL at which weights are compared, whatever a run has come to
MEASURABLE = 1e-6  # nats a token: below it the KL and its gradient are rounding
# Of the rewards' gradient at REACH: beta 0.005 has 0.003 to 0.03 in runs of ours, 0.5 has 0.3 to 0.8, 5 has 4 to 6.
HEAVY_PULL = 0.1
IDLE = 1e-3
AIM = 0.01  # what the suggested beta should have
WORTH = 0.01  # of the gradient: below this the wrong half of an estimator is not worth a word
HEAVY = 0.5  # a beta that can pin a policy: usual ones are 0.001 to 0.1
PINNED = 0.1  # of the KL that a normalised advantage pays for


def kl(case: Case) -> Sequence[Finding]:
    """Warnings about beta and the estimator; infos where the KL does nothing, or where only its loss is known.

    ## kl-weight

    Severity: warning (strong where the mean of the logs is three standard errors above the limit, else moderate); weak
    without gradient shares.

    Means: at 0.01 nats a token the KL's gradient is a tenth of the reward gradient, or more.

    Looks at: `grad_share/kl` and `kl`. The share is 0 at the start whatever beta is, since the KL is; the KL's gradient
    goes with the square root of the KL. So each measured step gives one number that does not depend on how far the run
    has come: share / (1 - share) x sqrt(0.01 / kl). The rule takes the median of three steps or more. Without gradient
    shares a beta of 0.5 or more with a KL under a tenth of what a normalised advantage pays for (1 / beta for each
    completion) is a weak hint.

    Confounder: the share itself is no measure: it was 0.02 to 0.25 at beta 0.5 after 30 steps and 0.3 to 0.5 at beta 5,
    and cannot go far beyond a half, since a policy that is held does not move, and what does not move is not pulled
    back. The KL's share of the loss is none either (`kl-loss-share`).

    Do: the suggested smaller beta. To see it: `grpoctl run p31 --profile tiny beta=0.5`.

    Measured: found in all 27 runs with beta 0.5 or 5, accused in none of 32 with 0.005; 10 of 10 planted (beta x100).
    Medians by beta, and the harm: [benchmarks](benchmarks.md#kl-weight).

    ## kl-estimator

    Severity: warning above 1 % of wrong gradient, and never without a measured share; else info (certain: the settings
    say it).

    Means: plain k3 in the loss has the gradient of KL(reference || policy), and not of the reverse KL that its value
    estimates. The two differ by about half a log ratio, sqrt(KL / 2): 1.6 % at 5e-4 nats, 10 % at 0.02. Times the KL's
    share of the gradient that is what is wrong with the update. k1 in the loss has the expected gradient 0; specs
    refuse it, other tools do not.

    Looks at: `kl_estimator`, `kl` and `grad_share/kl` (TRL logs no share).

    Confounder: none for the fact; whether it matters depends on the share.

    Do: `kl_estimator=k3_ratio` (or `k2`). To see it: `grpoctl run p31 --profile tiny beta=0.5 kl_estimator=k3`.

    Measured: 10 of 10 planted (as info: in 20 steps the policy is 0.002 nats from its start, and the two gradients
    hardly differ there). At beta 0.5 it was 2.0 % and 2.5 % of the gradient after 96 steps and 0.4 % after 30. No harm
    was measured: at seed 100 eval/reward ended at 0.614 against k2's 0.619.
    """
    rows = case.stage_rows
    if not any(_beta(case, row) for row in rows) or case.settings.kl_in == "reward":
        return ()
    shares = [value for _, value in series(rows, "grad_share/kl")]
    pulls = _pulls(rows)
    if len(pulls) >= MEASURED:
        weight = _by_gradient(case, pulls)
    else:
        weight = _pinned(case, rows) or (None if shares else _by_loss(case, rows))
    share = _late(rows, "grad_share/kl") if len(shares) >= MEASURED else None
    return [finding for finding in (weight, _estimator(case, rows, share)) if finding is not None]


def _pulls(rows: Sequence[Row]) -> list[float]:
    """How hard the KL pulled on each measured step, in units of the other gradients, had it been REACH.

    Its gradient goes with the square root of the KL, so what is measured early and late is one number.
    """
    pulls = []
    for row in rows:
        share, level = number(row, "grad_share/kl"), number(row, "kl")
        if share is not None and 0 < share < 1 and level is not None and level > MEASURABLE:
            pulls.append(share / (1 - share) * math.sqrt(REACH / level))
    return pulls


def _beta(case: Case, row: Row) -> float:
    return number(row, "beta") or case.settings.beta or 0.0


def _largest_beta(case: Case, rows: Sequence[Row]) -> float:
    return max(_beta(case, row) for row in rows)


def _late(rows: Sequence[Row], metric: str) -> float | None:
    """The mean of a column over the later half of the steps that have it."""
    values = [value for _, value in series(rows, metric)]
    return fmean(values[len(values) // 2 :]) if values else None


def _by_gradient(case: Case, pulls: Sequence[float]) -> Finding | None:
    """What the measured steps say of beta: too much, nothing, or neither.

    ## kl-idle

    Severity: info (strong).

    Means: at 0.01 nats a token the KL's gradient is under a thousandth of the reward gradient: the KL term does
    nothing.

    Looks at: the same as `kl-weight`.

    Confounder: a beta that grows later in the run (a schedule, an adaptive rule).

    Do: `beta=0`: the reference is then not run, one forward less for each update.
    """
    beta, pull = _largest_beta(case, case.stage_rows), median(pulls)
    logs = [math.log(value) for value in pulls]
    se = stdev(logs) / math.sqrt(len(logs))
    share = _late(case.stage_rows, "grad_share/kl") or 0.0
    evidence: dict[str, float | str] = {
        "beta": beta, "pull": pull, "at_kl": REACH, "se_of_log": se, "measured": len(pulls), "grad_share": share,
        "kl": _late(case.stage_rows, "kl") or 0.0,
    }  # fmt: skip
    factor = case.settings.factor or "token"
    if pull < IDLE:
        return Finding(
            id="kl-idle",
            severity="info",
            summary=(
                f"beta {beta:g} does nothing: at {REACH} nats/{factor} its gradient is {pull:.1g} times the reward "
                "gradient"
            ),
            evidence=evidence,
            rules_out=_loss_share(case.stage_rows),
            suggest=("beta=0",),
            advice="without a KL the reference is not run: one forward less for each update",
            confidence="strong",
        )
    if pull <= HEAVY_PULL:
        return None
    change = (f"beta={beta * AIM / pull:.1g}",)
    return Finding(
        id="kl-weight",
        severity="warning",
        summary=(
            f"beta {beta:g} is large: at {REACH} nats/{factor} its gradient is {pull:.2g} times the reward gradient "
            f"({share:.0%} of the gradient lately)"
        ),
        evidence=evidence,
        rules_out=_loss_share(case.stage_rows),
        suggest=change,
        advice="its share stays below a half however large beta is: a policy that hardly moves is pulled back hardly",
        confidence="strong" if fmean(logs) - 3 * se > math.log(HEAVY_PULL) else "moderate",
        decider=Decider(
            question="does the reward rise further with less of a KL?",
            overrides=change,
            expects=("grad_share/kl < 0.05",),
        ),
    )


def _loss_share(rows: Sequence[Row]) -> tuple[RuledOut, ...]:
    """What its share of the loss would have said, where both parts are known."""
    if (share := _share_of_loss(rows)) is None or share < 0.5:
        return ()
    why = (
        f"the KL is {share:.0%} of the loss, but at a ratio near 1 the policy's loss is about 0 whatever its gradient "
        "is: only shares of the gradient compare them"
    )
    return (RuledOut(id="kl-share-of-loss", why=why),)


def _share_of_loss(rows: Sequence[Row]) -> float | None:
    """|KL part| over |KL part| + |policy part|, of their means; None where one is not known."""
    policy = [value for _, value in series(rows, "policy/loss")]
    weighted = [value for _, value in series(rows, "kl_loss")] or [
        beta * value for row in rows if (beta := number(row, "beta")) and (value := number(row, "kl")) is not None
    ]
    if min(len(policy), len(weighted)) < MEASURED:
        return None
    mine, other = abs(fmean(weighted)), abs(fmean(policy))
    return mine / (mine + other) if mine + other > 0 else None


def _by_loss(case: Case, rows: Sequence[Row]) -> Finding | None:
    """An info that the loss does not say what people read into it: only where no gradient share is known.

    ## kl-loss-share

    Severity: info (certain).

    Means: the KL is most of the loss, and that does not say that it dominates: no gradient was measured. At a ratio
    near 1 centred advantages make the policy's loss about 0 whatever its gradient is: in every sound run of ours the KL
    is 99 to 100 % of the loss and 0.02 to 1 % of the gradient. (Document 001 read 93 % as a diagnosis; see the
    [glossary](glossary.md#documents).)

    Looks at: the two parts of the loss, where both are known. `kl-share-of-loss` is then ruled out, also by `kl-weight`
    and `small-advantage`.

    Confounder: a heavy beta, which only gradient norms show.

    Do: measure `grad_share/kl` before beta is changed.
    """
    if not (ruled := _loss_share(rows)):
        return None
    share = _share_of_loss(rows) or 0.0
    return Finding(
        id="kl-loss-share",
        severity="info",
        summary=f"the KL is {share:.0%} of the loss, and that does not say it dominates: no gradient was measured",
        evidence={"share_of_loss": share, "beta": _largest_beta(case, rows)},
        rules_out=ruled,
        advice="measure the share of the gradient norm (grad_share/kl) before beta is changed for it",
        confidence="certain",
    )


def _pinned(case: Case, rows: Sequence[Row]) -> Finding | None:
    """A hint: beta is large and the policy stays far below what the term allows.

    The best of E[A] - beta KL is at a KL of at most 1 / beta for each completion, A having unit std.
    """
    beta, level, length = _largest_beta(case, rows), _late(rows, "kl"), _late(rows, "completions/length")
    if beta < HEAVY or level is None or not length or case.settings.offline:
        return None
    allowed = 1 / (beta * length)
    if level > PINNED * allowed:
        return None
    return Finding(
        id="kl-weight",
        severity="warning",
        summary=(
            f"beta {beta:g} may pin the policy: the KL stays at {level:.2g} {case.settings.per_factor}, and a "
            f"completion's advantage pays for {allowed:.2g} at most"
        ),
        evidence={"beta": beta, "kl": level, "allowed": allowed},
        suggest=(f"beta={beta / 100:.1g}",),
        confidence="weak",
        decider=Decider(
            question="does the KL grow with less of a weight?",
            overrides=(f"beta={beta / 100:.1g}",),
            expects=(f"kl > {10 * level:.1g}",),
        ),
    )


def _estimator(case: Case, rows: Sequence[Row], share: float | None) -> Finding | None:
    kind, level = case.settings.kl_estimator, _late(rows, "kl")
    if kind == "k1":
        return Finding(
            id="kl-estimator",
            severity="warning",
            summary="k1 in the loss has an expected gradient of exactly 0: beta adds noise and holds nothing back",
            evidence={"kl_estimator": kind, "beta": _largest_beta(case, rows)},
            suggest=("kl_estimator=k2",),
            confidence="certain",
        )
    return _plain_k3(case, rows, level, share) if kind == "k3" and level is not None else None


def _plain_k3(case: Case, rows: Sequence[Row], level: float, share: float | None) -> Finding:
    """Its gradient is the forward KL's. The two differ by about half a log ratio: sqrt(KL / 2) of it."""
    off = math.sqrt(max(level, 0.0) / 2)
    matters = share is not None and off * share > WORTH
    part = "" if share is None else f", {off * share:.1%} of the whole gradient"
    return Finding(
        id="kl-estimator",
        severity="warning" if matters else "info",
        summary=(
            "plain k3 in the loss has the gradient of the forward KL(reference || policy), not of the reverse one that "
            f"its value is of; at {level:.2g} {case.settings.per_factor} they differ by about {off:.0%}{part}"
            f"{_unless(matters, share)}"
        ),
        evidence={
            "kl_estimator": "k3", "beta": _largest_beta(case, rows), "kl": level, "differs_by": off,
            **({} if share is None else {"grad_share": share}),
        },
        suggest=("kl_estimator=k3_ratio",),
        confidence="certain",
        decider=Decider(
            question="does the estimator with the reverse KL's gradient reach another reward at the same KL?",
            overrides=("kl_estimator=k3_ratio",),
        ),
    )  # fmt: skip


def _unless(matters: bool, share: float | None) -> str:
    if matters:
        return ""
    return "; how much of the gradient is the KL's was not measured" if share is None else ": too little to matter here"
