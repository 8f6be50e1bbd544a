"""Are advantages centred where the baseline centres them, and of a spread about 1 where a moving scale is to see to it?

Not here: the spread that a group's z-score or ranks must have (impossible_advantage), and rewards against advantages
(advantage_mismatch).

## odd-advantages

Severity: warning (strong for the mean; moderate or weak for the spread).

Means: advantages are not centred although a group's baseline centres them (a mean beyond 5 % of the largest
advantage), or their std lies outside 0.5 to 2 under a moving scale. Document 003's guide suggests global
normalisation, other reward weights, a tighter clip.

Looks at: `advantage/mean`, `advantage/std` and `advantage/max_abs` over ten steps or more.

Confounder: a clip, which biases the mean; completions left out after the baseline. A group's own statistics cannot
drift; global ones lag when rewards change.

Do: for the mean, look at what stands between the baseline and the loss; for the spread,
`advantage.scale_rewards=group`. A tighter clip hides outliers and biases the mean.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from core.health.case import Case
from core.health.finding import Decider, Finding
from core.health.trend import chance_beyond, series

ENOUGH = 10  # steps
CENTRED = ("group", "leave_one_out")
SIGNIFICANT = 1e-3
OFF = 0.05  # of the largest advantage: rounding is 1e-7 of it
SPREAD = (0.5, 2.0)  # around 1: outside of it a scale does not do what it is there for


def odd_advantages(case: Case) -> Sequence[Finding]:
    """A warning for a mean that a group's own baseline cannot leave, or a spread far from 1 under a moving scale."""
    found = _off_centre(case) or _spread(case)
    return () if found is None else (found,)


def _off_centre(case: Case) -> Finding | None:
    known = case.settings
    means = [value for _, value in series(case.stage_rows, "advantage/mean")]
    sizes = [
        abs(value) for name in ("advantage/max_abs", "advantage/max") for _, value in series(case.stage_rows, name)
    ]
    if known.baseline not in CENTRED or known.advantage_clip is not None or known.reshaped or len(means) < ENOUGH:
        return None
    if not sizes or max(map(abs, means)) <= OFF * max(sizes):
        return None
    off, se = fmean(means), stdev(means) / math.sqrt(len(means))
    p, peak = chance_beyond(off / se) if se > 0 else 0.0, max(means, key=abs)
    return Finding(
        id="odd-advantages",
        severity="warning",
        summary=(
            f"advantages have a mean of up to {peak:+.3g} on a step, and {off:+.3g} (standard error {se:.1g}) over "
            f"{len(means)} steps: a {known.baseline.replace('_', '-')} baseline leaves 0 in every group"
        ),
        evidence={"mean": off, "se": se, "p": p, "largest": peak, "steps": len(means)},
        advice=(
            "something stands between the baseline and the loss: a clip, completions left out after it, groups "
            "of unequal size or in another order"
        ),
        confidence="strong",
        decider=Decider(question="do the samples' advantages of each group add up to 0?"),
    )


def _spread(case: Case) -> Finding | None:
    """Under statistics that lag behind the rewards the spread may drift; under a group's own it cannot."""
    if case.settings.scale_rewards not in (None, "running", "batch", "batch_centred"):
        return None
    stds = [value for name in ("advantage/std", "advantage/std_all") for _, value in series(case.stage_rows, name)]
    unknown = case.settings.scale_rewards is None
    imitated = any("rce/loss" in row for row in case.rows)  # its weights are no advantages
    if len(stds) < ENOUGH or (unknown and (imitated or case.settings.transform is not None)):
        return None
    middle, se = fmean(stds), stdev(stds) / math.sqrt(len(stds))
    low, high = SPREAD
    if low - 4 * se <= middle <= high + 4 * se:
        return None
    return Finding(
        id="odd-advantages",
        severity="warning",
        summary=(
            f"advantages have a std of {middle:.3g} (standard error {se:.1g}) over {len(stds)} steps, far from the "
            f"1 that it is normalised for: updates are in effect {'smaller' if middle < low else 'larger'} by that"
        ),
        evidence={
            "std": middle,
            "se": se,
            "p": chance_beyond((middle - 1) / se) if se > 0 else 0.0,
            "steps": len(stds),
        },
        suggest=("advantage.scale_rewards=group",),
        advice=(
            "a global (running) scale is what document 003 advises, and is what lags when rewards change; other reward "
            "weights change what is learned, not the spread; a tighter clip hides the outliers and biases the mean"
        ),
        confidence="weak" if unknown else "moderate",
        decider=Decider(
            question="is it the scale?", overrides=("advantage.scale_rewards=group",), expects=("advantage/std > 0.9",)
        ),
    )
