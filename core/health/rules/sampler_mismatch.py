"""What other trainers log of an inference engine that does not draw from the policy that is trained.

What is here: importance ratios, differences of probabilities, their correlation, what is masked for it. What is not:
log-prob gaps, which are judged by dtype and by a run's own noise (integrity).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from core.health.case import Case
from core.health.finding import Decider, Finding, RuledOut
from core.health.steps import number, values_of

# column -> (limit of a warning, limit of an error, whether more is worse). Sound engines in bf16: mean |difference| of
# probabilities 0.005 to 0.02, correlation above 0.99, KL below 0.01, mean ratio within a few hundredths of 1.
LIMITS: Mapping[str, tuple[float, float, bool]] = {
    "sampler/prob_gap": (0.04, 0.1, True),
    "sampler/correlation": (0.95, 0.8, False),
    "sampler/kl": (0.05, 0.3, True),
    "sampler/masked": (0.2, 0.5, True),
}
RATIO = (0.5, 0.1)  # the mean ratio, or one over it, below these: a warning, an error
SURROGATE = 5.0  # of a policy loss: twice what advantages of unit scale allow at ratios around 1
FEW, OFTEN = 3, 0.05  # rows beyond it, and their share
STILL = 0.05  # nats a token from the reference
UNIT = 2.0  # of a reward, at most: then advantages are of unit scale or less, divided by a deviation or not
LATE = 5  # rows that the level at the end is the median of


def _late(values: Sequence[float]) -> float:
    """The level at the end: of few rows the last third, one at least."""
    return median(values[-min(LATE, max(1, len(values) // 3)) :])


def sampler_mismatch(case: Case) -> Sequence[Finding]:
    """Whether the engine that samples and the trainer are two policies, by whatever the trainer logs of it.

    ## sampler-mismatch

    Severity: error beyond the second limit, warning beyond the first (strong where two columns say so, else moderate).

    Means: the inference engine does not draw from the policy that is trained (stale or other weights, another dtype or
    quantisation, another kernel or expert routing): importance ratios leave 1, corrections mask the gradient away, and
    updates are of other completions than were drawn.

    Looks at: the median of the last five rows, of few the last third: `sampler/prob_gap` (limits 0.04 and 0.1),
    `sampler/correlation` (0.95 and 0.8), `sampler/kl` (0.05 and 0.3 nats a token), `sampler/masked` (0.2 and 0.5) and
    the mean importance ratio `sampler/ratio_mean` (a factor of 2 and of 10 from 1). Without those columns the KL to
    the reference (warning, moderate): on two rows or more, 15 % at least, it is 1 nat a token or more and a hundred
    times the others' median, which is below 0.1, and each time it is back on the next row. And a reward that fell to a
    quarter or less between a few rows while that KL stays below 0.05 (warning, moderate; more under `policy-collapse`).
    And a `policy/loss` (or `loss`) above 5 on three rows or more, 5 % at least, none of them further below 0 than a
    tenth of the largest, where rewards are 2 at most and that KL is below 0.05 (warning, moderate): at ratios around 1
    it is within twice the advantages, and only a ratio far above 1 before a bad completion makes it large.

    Confounder: ratios of whole sequences, which TRL logs by default, are far from 1 for long completions in sound runs:
    a ratio alone is a warning at most. Single spikes of a KL (k3 of a token that is hardly drawn any more): one jump,
    or a few among many rows, is none; more of them the sentence names beside the sampler. Engines in bf16 never agree
    to float32's rounding; the limits are above that. A loss that is summed over tokens is as large below 0 as above it;
    rewards of a large scale make large losses without a deviation to divide by.

    Rules out: `learning-rate`, where the gap was there on the first row.

    Do: score the engine's own completions with the trainer before the first update; sync weights, use one dtype for
    both (fp16 or fp32 where bf16 is too coarse), replay the expert routing of a mixture of experts.
    """
    rows = case.steps
    warnings, errors = dict[str, float](), dict[str, float]()
    first_row = False
    for column, (mild, grave, more) in LIMITS.items():
        values = values_of(rows, column)
        if not values:
            continue
        level = _late(values)
        if level > mild if more else level < mild:
            warnings[column] = level
            first_row = first_row or (values[0] > mild if more else values[0] < mild)
        if level > grave if more else level < grave:
            errors[column] = level
    ratios = values_of(rows, "sampler/ratio_mean")
    ratio = _late(ratios) if ratios else 1.0
    away = min(ratio, 1 / ratio) if ratio > 0 else 0.0
    if away < RATIO[0]:
        warnings["sampler/ratio_mean"] = ratio
    if away < RATIO[1] and len(warnings) > 1:
        errors["sampler/ratio_mean"] = ratio
    if not warnings:
        return _surrogate_beyond(case)
    named = ", ".join(f"{column} {value:.3g}" for column, value in warnings.items())
    start = "from the first row on" if first_row else "at the end"
    ruled = (RuledOut(id="learning-rate", why="the engine disagreed on the first row, before anything was learned"),)
    return (
        Finding(
            id="sampler-mismatch",
            severity="error" if errors else "warning",
            summary=f"sampler and trainer are two policies {start}: {named}",
            evidence={**warnings, "rows": len(rows), "from_the_start": float(first_row)},
            rules_out=ruled if first_row else (),
            advice="sync the weights, use one dtype for both; score the engine's completions before any update",
            confidence="strong" if len(warnings) > 1 else "moderate",
            decider=Decider(
                question="does the gap go away with the trainer's own sampler, everything else the same?",
                overrides=("guards.rollout_integrity=stop",),
            ),
        ),
    )


def _surrogate_beyond(case: Case) -> Sequence[Finding]:
    """A policy loss that no ratio around 1 gives, while the policy is where it started."""
    column = "policy/loss" if values_of(case.stage_rows, "policy/loss") else "loss"
    known = [row for row in case.stage_rows if number(row, column) is not None]
    losses, kls = values_of(known, column), values_of(known, "kl")
    rewards = [abs(value) for name in ("reward/mean", "reward/max", "reward/min") for value in values_of(known, name)]
    beyond = [row for row in known if (number(row, column) or 0.0) > SURROGATE]
    if not rewards or max(rewards) > UNIT or len(kls) < len(known) or not known or max(map(abs, kls)) > STILL:
        return ()
    if len(beyond) < max(FEW, OFTEN * len(known)) or min(losses) < -0.1 * max(losses):
        return ()
    first = int(beyond[0].get("step") or 0)
    return (
        Finding(
            id="sampler-mismatch",
            severity="warning",
            summary=(
                f"{column} is above {SURROGATE:g} on {len(beyond)} of {len(known)} rows, {max(losses):.3g} at most, "
                f"and never far below 0, from step {first} on, while the policy is {max(map(abs, kls)):.2g} nats a "
                "token from its reference at most: importance ratios are far above 1 though the policy hardly moved, "
                "so the log-probs that they divide by are not its own"
            ),
            evidence={
                "loss_most": max(losses), "loss_least": min(losses), "beyond": len(beyond), "rows": len(known),
                "kl": max(map(abs, kls)), "first_step": first,
            },
            rules_out=(RuledOut(id="learning-rate", why="the policy is where it started, by the KL"),),
            advice=(
                "score the sampler's completions with the trainer's own weights before any update and compare; sync the"
                " weights, use one dtype and one chat template for both"
            ),
            confidence="moderate",
            decider=Decider(
                question="is the loss within 1 where the trainer scores the old log-probs itself?",
                overrides=("guards.rollout_integrity=stop",),
            ),
        ),
    )  # fmt: skip
