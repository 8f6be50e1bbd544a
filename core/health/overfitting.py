"""Does a run get better on what it trains on and worse on what it does not? Both as trends over steps.

## overfitting

Severity: warning (moderate).

Means: from the best evaluation on, `eval/reward` falls while `reward/mean` rises: what is learned holds for the
training prompts only.

Looks at: both trends, each with p < 0.001. The fall: the last evaluation and the mean of the last third against the
best, the later half since being the worse one; p times the number of evaluations (the best was chosen). Its standard
error is that of two evaluations, or the standard deviation of the steps from one evaluation to the next since the
best, where that is larger: weights wander between evaluations, and an evaluation's own error knows nothing of it. The
rise: a regression of `reward/mean` on the steps after the best evaluation.

Confounder: a reward that is gamed on the training prompts looks the same.

Do: keep the checkpoint of the best evaluation; train on more prompts or for fewer passes; read samples of the last
steps. `early_stopping.patience` is suggested unless the best evaluation is the one before training.

Measured: false alarms in 1 of 500 simulated runs whose `reward/mean` rises by 0.3 in 200 steps and whose 21
evaluations are all equal but for noise; in 11 of 200 whose evaluations wander (AR(1) with rho 0.8, standard deviation
0.08, each measured to 0.02), where last against best alone found a quarter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, pstdev

from core.health.case import Case
from core.health.finding import Finding
from core.health.missed_stop import shortest_patience
from core.health.noise import Measured, evaluations
from core.health.trend import chance_above, series, trend

SIGNIFICANT = 1e-3


def overfitting(case: Case) -> Sequence[Finding]:
    """A warning where, from the best evaluation on, eval/reward falls and reward/mean rises, both with p < 0.001.

    The fall is the last third of the evaluations against the best, and goes on. The best was chosen among M, which
    alone puts it above the others, so its p is taken M times. The rise is a regression on the steps after it.
    """
    seen = evaluations(case)
    if len(seen) < 3:
        return ()
    best, last = max(seen, key=lambda one: one.reward), seen[-1]
    since = seen[seen.index(best) + 1 :]
    se = math.hypot(best.se, last.se)
    if last is best or se == 0 or not _falls_on(since):
        return ()
    se = max(se, _wander(since))
    third = seen[-max(2, len(seen) // 3) :]
    lost = best.reward - max(last.reward, fmean(one.reward for one in third))
    fall = min(1.0, len(seen) * chance_above(lost / se))
    trained = trend(series([row for row in case.stage_rows if (row["step"] or 0) > best.step], "reward/mean"))
    if trained is None or (rise := chance_above(trained.z)) >= SIGNIFICANT or fall >= SIGNIFICANT:
        return ()
    return (_finding(case, (best, last), (trained.slope, rise), (fall, se)),)


def _wander(since: Sequence[Measured]) -> float:
    """How far one evaluation is from the next, apart from their drift: weights wander, and its own error has no say."""
    return pstdev([b.reward - a.reward for a, b in pairwise(since)]) if len(since) > 2 else 0.0


def _falls_on(since: Sequence[Measured]) -> bool:
    """Whether the later half of what came after the best is the worse one."""
    half = len(since) // 2
    return half > 0 and fmean(one.reward for one in since[-half:]) < fmean(one.reward for one in since[:half])


def _finding(
    case: Case, evals: tuple[Measured, Measured], trained: tuple[float, float], fallen: tuple[float, float]
) -> Finding:
    (best, last), (slope, rise), (fall, se) = evals, trained, fallen
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
            "se": se, "p_fall": fall, "rise_per_step": slope, "p_rise": rise,
        },
        suggest=(f"early_stopping.patience={patience}",) if best.step > 0 else (),  # else it keeps the untrained model
        advice=(
            "keep the checkpoint of the best evaluation, and train on more prompts or for fewer passes; a reward that "
            "is gained on training prompts alone may also be one that is gamed: read samples of the last steps"
        ),
        confidence="moderate",  # the errors are those of an evaluation; how far weights wander between two is not known
    )  # fmt: skip
