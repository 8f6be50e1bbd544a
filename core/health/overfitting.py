"""Does a run get better on what it trains on and worse on what it does not? Both as trends over steps."""

from __future__ import annotations

import math
from collections.abc import Sequence

from core.health.case import Case
from core.health.finding import Finding, steps_of
from core.health.missed_stop import shortest_patience
from core.health.noise import Measured, evaluations
from core.health.trend import chance_above, series, trend

SIGNIFICANT = 1e-3


def overfitting(case: Case) -> Sequence[Finding]:
    """A warning where, from the best evaluation on, eval/reward falls and reward/mean rises, both with p < 0.001.

    The fall is the last evaluation against the best. The best was chosen among M, which alone puts it above the last,
    so its p is taken M times. The rise is a regression on steps after the best evaluation.
    """
    seen = evaluations(case)
    if len(seen) < 3:
        return ()
    best, last = max(seen, key=lambda one: one.reward), seen[-1]
    se = math.hypot(best.se, last.se)
    if last is best or se == 0:
        return ()
    fall = min(1.0, len(seen) * chance_above((best.reward - last.reward) / se))
    trained = trend(series([row for row in steps_of(case.rows) if (row["step"] or 0) > best.step], "reward/mean"))
    if trained is None or (rise := chance_above(trained.z)) >= SIGNIFICANT or fall >= SIGNIFICANT:
        return ()
    return (_finding(case, (best, last), (trained.slope, rise), fall),)


def _finding(case: Case, evals: tuple[Measured, Measured], trained: tuple[float, float], fall: float) -> Finding:
    (best, last), (slope, rise) = evals, trained
    patience = shortest_patience([reward for _, reward in series(case.rows, "eval/reward")])
    return Finding(
        id="overfitting",
        severity="warning",
        summary=(
            f"eval/reward fell from {best.reward:.3g} (step {best.step}) to {last.reward:.3g} while reward/mean rose "
            f"by {100 * slope:.2g} in 100 steps: what is learned holds for the training prompts only"
        ),
        evidence={
            "best_step": best.step, "best": best.reward, "last_step": last.step, "last": last.reward,
            "se": math.hypot(best.se, last.se), "p_fall": fall, "rise_per_step": slope, "p_rise": rise,
        },
        suggest=(f"early_stopping.patience={patience}",),
        advice=(
            "keep the checkpoint of the best evaluation, and train on more prompts or for fewer passes; a reward that "
            "is gained on training prompts alone may also be one that is gamed: read samples of the last steps"
        ),
    )  # fmt: skip
