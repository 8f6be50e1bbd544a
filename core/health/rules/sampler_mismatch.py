"""What other trainers log of an inference engine that does not draw from the policy that is trained.

What is here: importance ratios, differences of probabilities, their correlation, what is masked for it. What is not:
log-prob gaps, which are judged by dtype and by a run's own noise (integrity).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from core.health.case import Case
from core.health.finding import Decider, Finding, RuledOut, steps_of
from core.health.steps import values_of

# column -> (limit of a warning, limit of an error, whether more is worse). Sound engines in bf16: mean |difference| of
# probabilities 0.005 to 0.02, correlation above 0.99, KL below 0.01, mean ratio within a few hundredths of 1.
LIMITS: Mapping[str, tuple[float, float, bool]] = {
    "sampler/prob_gap": (0.04, 0.1, True),
    "sampler/correlation": (0.95, 0.8, False),
    "sampler/kl": (0.05, 0.3, True),
    "sampler/masked": (0.2, 0.5, True),
}
RATIO = (0.5, 0.1)  # the mean ratio, or one over it, below these: a warning, an error
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

    Confounder: ratios of whole sequences, which TRL logs by default, are far from 1 for long completions in sound runs:
    a ratio alone is a warning at most. Single spikes of a KL (k3 of a token that is hardly drawn any more): one jump,
    or a few among many rows, is none; more of them the sentence names beside the sampler. Engines in bf16 never agree
    to float32's rounding; the limits are above that.

    Rules out: `learning-rate`, where the gap was there on the first row.

    Do: score the engine's own completions with the trainer before the first update; sync weights, use one dtype for
    both (fp16 or fp32 where bf16 is too coarse), replay the expert routing of a mixture of experts.
    """
    rows = steps_of(case.rows)
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
        return ()
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
