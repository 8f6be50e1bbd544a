"""A loss of 0, or of beta times the KL: what centred advantages at a ratio of 1 give, whatever is learned.

A gradient of 0 beside it is another matter: then nothing is learned. Not here: a policy loss that rises
(core.health.rules.ratio), how much of the loss the KL is (core.health.rules.kl).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from core.health.case import Case
from core.health.finding import Confidence, Decider, Finding, Row, RuledOut
from core.health.statistics import series
from core.health.steps import number, values_of

NONE = 1e-6  # of a loss: what float32 leaves of advantages that add up to 0
PRINTED = 6e-5  # half of the last digit of a log with four decimals
CLOSE = 0.02  # relative, of a loss to beta x kl
NEAR = 0.1  # the same, where the KL is a mean over sequences and the loss over tokens
APART = 1.5  # times: a KL that varies less shows no ratio
ENOUGH = 20  # steps
FEW = 3  # rows that show a ratio
MOSTLY = 0.5  # of the gradients are not 0
ALONE = frozenset({"step", "update", "loss", "policy/loss", "learning_rate", "epoch"})  # they tell nothing of a loss


@dataclass(frozen=True, kw_only=True, slots=True)
class KlLoss:
    """A loss that is the KL term and nothing else."""

    beta: float
    known: bool  # from the settings or the rows; else fitted
    error: float  # largest relative distance


def zero_loss(case: Case) -> Sequence[Finding]:
    """An info where the loss is 0 or beta x kl while gradients are not 0, or where every group is dead.

    ## zero-loss

    Severity: info (certain from 20 steps on, or where beta x kl equals the loss; else strong, moderate for fewer than
    three rows or without a gradient norm) where the gradient is not 0; info (weak) where a log of three rows or more
    has nothing but losses and rates; info (moderate) where the gradient is 0 as well and all groups are known to be
    dead, which is the cause.

    Means: the loss is 0, about 1e-8, or beta times the KL. At a ratio of 1 (each rollout learned from once) the policy
    term is minus the mean advantage, and the advantages of a group add up to 0: its value is 0 by construction while
    its gradient is not. What is left of the loss is the KL term, which grows from 0 as the policy moves. The value says
    nothing of learning. With a gradient of 0, too, nothing was learned: that is `no-gradient`.

    Looks at: `loss` (`policy/loss` where a log has no other): below 1e-6 on every row; or within 2 % of beta x `kl` (10
    % where they are of different means, half a unit of the fourth decimal at least) with `beta` from the settings or
    the rows; else one ratio of loss to KL on three rows or more over which the KL varies by half, which is then the
    beta, or one that gives losses of four decimals up to 0.0006 as they were rounded. `grad_norm`, and rewards that
    differ: something is learned.

    Confounder: groups that are all dead, or a weight that no gradient reaches, have a loss of 0 as well: their gradient
    is 0 or no more than the KL's, and they have findings of their own (`dead-groups`, `constant-reward`, `dead-run`,
    `no-gradient`): silent where no reward differs, and where the gradient is 0 unless every group is dead. Advantages
    that are not centred or several updates a rollout have a loss that is not 0: silent. A run of ours has every term in
    a column of its own: silent there, unless the loss is exactly 0 on 20 steps.

    Do: nothing is wrong: look at the reward, at `grad_norm` and at `kl`.
    """
    column = "loss" if values_of(case.stage_rows, "loss") else "policy/loss"
    rows = [row for row in case.stage_rows if number(row, column) is not None]
    if not rows:
        return ()
    norms = values_of(rows, "grad_norm")
    losses = values_of(rows, column)
    none = max(map(abs, losses)) <= NONE
    kl_loss = None if none else _kl_loss(case, rows)
    steps = len(rows) * case.averaged_over
    if norms and not any(norms):
        return (_all_dead(rows, steps),) if none and _every_group_is_dead(rows) else ()
    ours = bool(case.stages) and (steps < ENOUGH or any(losses))  # it has every term apart: nobody wonders
    elsewhere = none and any(abs(loss) > NONE for loss in values_of(rows, "policy/loss"))  # a loss of something else
    if (not none and kl_loss is None) or ours or elsewhere or no_signal(rows):
        return ()
    if not norms and not _signal(rows):
        alone = {name for row in rows for name in row} <= ALONE
        return (_alone(rows, steps),) if none and alone and len(rows) >= FEW else ()
    if sum(map(bool, norms)) < MOSTLY * len(norms):
        return ()
    return (_by_construction(column, rows, steps, kl_loss),)


def _kl_loss(case: Case, rows: Sequence[Row]) -> KlLoss | None:
    """The loss as beta x kl on every row; None where it is not, or no KL was there."""
    known = [
        (loss, kl, number(row, "beta") or case.settings.beta)
        for row in rows
        if (loss := number(row, "loss")) is not None and (kl := number(row, "kl")) is not None
    ]
    if len(known) < len(rows) or not any(kl > 0 for _, kl, _ in known) or not any(loss for loss, _, _ in known):
        return None
    betas = [beta for _, _, beta in known if beta]
    if len(betas) == len(known):
        errors = [abs(loss - beta * kl) for loss, kl, beta in known if beta]
        sizes = [max(abs(beta * kl), 1e-12) for _, kl, beta in known if beta]
        fits = all(error <= max(NEAR * size, PRINTED) for error, size in zip(errors, sizes, strict=True))
        felt = max(sizes) > PRINTED
        worst = (
            max(error / size for error, size in zip(errors, sizes, strict=True) if size > PRINTED) if felt else CLOSE
        )
        return KlLoss(beta=median(betas), known=True, error=worst) if fits and (felt or max(errors) < NONE) else None
    kls = [kl for _, kl, _ in known]
    if not betas and (beta := _rounded_beta(known)) is not None:
        return KlLoss(beta=beta, known=False, error=CLOSE)
    if betas or len(known) < FEW or min(kls) <= 0 or max(kls) < APART * min(kls):
        return None
    ratios = [loss / kl for loss, kl, _ in known]
    middle = median(ratios)
    if middle <= 0 or max(abs(loss) for loss, _, _ in known) <= 10 * PRINTED:
        return None
    worst = max(abs(ratio / middle - 1) for ratio in ratios)
    return KlLoss(beta=middle, known=False, error=worst) if worst <= CLOSE else None


def _rounded_beta(known: Sequence[tuple[float, float, float | None]]) -> float | None:
    """A weight of the KL with which every loss is beta x kl in its four decimals; None where there is none, or where
    every loss is so small that any would do.
    """
    kls = [kl for _, kl, _ in known]
    if len(known) < FEW or max(kls) < APART * min(kls):
        return None
    if max(abs(loss) for loss, _, _ in known) > 10 * PRINTED or any(round(loss, 4) != loss for loss, _, _ in known):
        return None
    low = max((loss - PRINTED) / kl for loss, kl, _ in known if kl > 0)
    high = min((loss + PRINTED) / kl for loss, kl, _ in known if kl > 0)
    fits = all(abs(loss) <= PRINTED for loss, kl, _ in known if kl <= 0)
    return (low + high) / 2 if fits and 0 < low <= high else None


def no_signal(rows: Sequence[Row]) -> bool:
    """Whether every group is known to be dead, or all rewards of every row to be equal."""
    stds = values_of(rows, "reward/group_std") or values_of(rows, "reward/std")
    return _every_group_is_dead(rows) or bool(stds and max(stds) == 0)


def _signal(rows: Sequence[Row]) -> bool:
    """Whether rewards are known to differ."""
    dead = values_of(rows, "groups/dead")
    between = len(set(values_of(rows, "reward/mean"))) > 1 and not dead
    return (
        bool(dead and fmean(dead) < 1)
        or between
        or any(values_of(rows, "reward/std") + values_of(rows, "reward/group_std"))
    )


def _by_construction(column: str, rows: Sequence[Row], steps: int, kl_loss: KlLoss | None) -> Finding:
    norms, largest = values_of(rows, "grad_norm"), max(map(abs, values_of(rows, column)))
    still = sum(norm == 0 for norm in norms)
    why = "at a ratio of 1 centred advantages add up to 0"
    confidence: Confidence = "strong"
    if (kl_loss is not None and kl_loss.known and kl_loss.error <= CLOSE) or (norms and steps >= ENOUGH):
        confidence = "certain"
    elif not norms or len(rows) < FEW:
        confidence = "moderate"
    gradient = f"gradients are not (up to {max(norms):.3g})" if norms else "rewards differ"
    if kl_loss is None:
        exact = "exactly 0" if largest == 0 else f"0 up to rounding ({largest:.1g} at most)"
        text = f"the {column} is {exact} on all {len(rows)} steps, {gradient}: {why}"
    else:
        beta = f"{kl_loss.beta:.3g}" + ("" if kl_loss.known else ", which is then beta")
        text = (
            f"the {column} is beta x kl on all {len(rows)} steps (within {kl_loss.error:.1%}; beta {beta}), {gradient}"
            f": {why}, and what is left is the KL term, which grows as the policy moves"
        )
    return Finding(
        id="zero-loss",
        severity="info",
        summary=text
        + "; the value says nothing of learning"
        + (f"; {still} rows have a gradient of 0, whose groups are dead" if still else ""),
        evidence={
            "steps": steps,
            "loss_max": largest,
            **({"grad_norm_max": max(norms), "rows_without_gradient": still} if norms else {}),
            **({"beta": kl_loss.beta, "beta_known": float(kl_loss.known)} if kl_loss is not None else {}),
            **({"kl_first": kls[0][1], "kl_last": kls[-1][1]} if (kls := series(rows, "kl")) else {}),
        },
        rules_out=(RuledOut(id="zero-loss-no-learning", why=why),),
        advice="look at the reward, at grad_norm and at kl instead; nothing is wrong with this value",
        confidence=confidence,
    )


def _every_group_is_dead(rows: Sequence[Row]) -> bool:
    dead = values_of(rows, "groups/dead")
    return bool(dead) and min(dead) >= 1


def _all_dead(rows: Sequence[Row], steps: int) -> Finding:
    """That every group is dead has findings of its own, and this is what comes of it."""
    return Finding(
        id="zero-loss",
        severity="info",
        summary=(
            f"loss and gradient are exactly 0 on all {len(rows)} steps: nothing was learned, every group having equal "
            "rewards"
        ),
        evidence={"steps": steps, "grad_norm_max": 0.0},
        advice="see that rewards differ inside a group",
        confidence="moderate",
        decider=Decider(question="is a single group's reward spread above 0?", expects=("reward/group_std > 0",)),
    )


def _alone(rows: Sequence[Row], steps: int) -> Finding:
    """What a loss of 0 says by itself: one of two things."""
    return Finding(
        id="zero-loss",
        severity="info",
        summary=(
            f"the loss is 0 on all {len(rows)} rows, and neither rewards nor gradients tell why: with GRPO it is 0 by "
            "construction at a ratio of 1, and it is 0 where every group is dead or nothing is trained"
        ),
        evidence={"steps": steps},
        advice="log the reward, frac_reward_zero_std and grad_norm",
        confidence="weak",
        decider=Decider(
            question="has any group two different rewards, and is the gradient above 0 there?",
            expects=("groups/dead < 1", "grad_norm > 0"),
        ),
    )
