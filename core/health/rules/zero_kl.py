"""A KL to the start of exactly 0 on every row: the updates reach other weights, or the policy is its own reference.

A rate that is too small for any KL to show is `learning-rate`'s (core.health.rules.learning_rate), and a gradient of 0
is `no-gradient`'s.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median

from core.health.case import Case
from core.health.finding import Decider, Finding, Row, RuledOut
from core.health.steps import acted, ends_of, reward_gain, spread, values_of

ENOUGH, SOME, ROWS = 20, 10, 5  # updates, and rows
FEW = 5  # rows: the first and the last fifth of fewer than ten are one row each
FELT, CLEAR = 0.1, 4.0  # of a level, and standard errors: what an entropy or a length moves by where a policy does
MOVES = 1e-4  # a rate at which Adam changes a weight of any usual size, in bf16 too


def zero_kl(case: Case) -> Sequence[Finding]:
    """A warning where the KL to the start is exactly 0 after many updates that a gradient and a rate stand behind.

    Where reward, entropy or length say that the policy moved, what it is compared with did too (`reference-mismatch`).
    Else the two look the same here, and both are said (`no-updates`). Silent where a rate below 1e-4 explains it.
    """
    rows = case.stage_rows
    kls, gradients = values_of(rows, "kl"), [norm for norm in values_of(rows, "grad_norm") if norm > 0]
    rates = values_of(rows, "learning_rate") or [case.settings.learning_rate or 0.0]
    moved, changed = sum(map(acted, rows)) * case.averaged_over, _changed(rows)
    if len(kls) < ROWS or any(kls) or moved < SOME or 2 * len(gradients) < len(kls) or case.settings.beta == 0:
        return ()
    if changed:
        return (_own_reference(case, len(kls), changed),)
    if max(rates) < MOVES:
        return ()
    return (_other_weights(len(kls), max(rates), median(gradients), sure=moved >= ENOUGH),)


def _changed(rows: Sequence[Row]) -> list[str]:
    """What shows that the policy moved, in words: a reward that rose, an entropy or a length that left its level."""
    gain = reward_gain(rows)
    words = [f"the reward rose from {gain[0]:.3g} to {gain[1]:.3g}"] if gain is not None and gain[2] else []
    for metric in ("entropy", "completions/length"):
        early, late = ends_of(rows, metric, least=2 * FEW)
        if not early:
            continue
        before, after = fmean(early), fmean(late)
        error = spread(early, late) * math.sqrt(1 / len(early) + 1 / len(late))
        if abs(after - before) > max(FELT * abs(before), CLEAR * error):
            words.append(f"{metric} went from {before:.3g} to {after:.3g}")
    return words


def _own_reference(case: Case, rows: int, changed: Sequence[str]) -> Finding:
    """The policy moved, and the KL did not."""
    held = bool(case.settings.beta)
    return Finding(
        id="reference-mismatch",
        severity="warning" if held else "info",
        summary=(
            f"the KL is exactly 0 on all {rows} rows while {', '.join(changed)}: the policy is compared with itself "
            "(one set of weights for both, or a reference that is copied each time)"
            + (f", so beta {case.settings.beta:g} holds nothing" if held else ", or no KL is computed")
        ),
        evidence={"kl_max": 0.0, "rows": rows, "changed": changed},
        rules_out=(RuledOut(id="learning-rate", why=f"{changed[0]}, so something moved"),),
        advice="keep the reference's weights apart from the policy's; after an update their log-probs differ",
        confidence="moderate" if held else "weak",
        decider=Decider(question="do log-probs of policy and reference differ after one update?", expects=("kl > 0",)),
    )


def _other_weights(rows: int, rate: float, gradient: float, *, sure: bool) -> Finding:
    """Gradients and a rate that moves weights, and neither the KL nor the reward knows of it."""
    return Finding(
        id="no-updates",
        severity="warning",
        summary=(
            f"the KL to the start is exactly 0 on all {rows} rows, at a learning rate of {rate:.3g} and gradients of "
            f"{gradient:.2g}, and reward, entropy and length stay: the optimiser has other weights than "
            "the policy that is run (made before a copy, a wrap or an adapter), or the policy is its own reference"
        ),
        evidence={"kl_max": 0.0, "rows": rows, "learning_rate": rate, "grad_norm": gradient},
        rules_out=(RuledOut(id="learning-rate", why=f"a rate of {rate:.3g} moves weights, in bf16 too"),),
        advice="look at one weight of the policy before and after a step, and at the weights that the optimiser holds",
        confidence="strong" if sure else "moderate",
        decider=Decider(question="does a weight of the policy change with a step?"),
    )
