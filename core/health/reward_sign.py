"""Is the policy taught to earn less? By the curves alone; core.health.advantage_mismatch says it surely.

Two pictures. The reward that is learned from stands where minus the evaluation's reward would: a sign was flipped on
the way to the trainer. Or the training reward falls steadily while the policy moves away from its start, soundly: it
follows its gradient the wrong way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from core.health.case import Case
from core.health.finding import Decider, Finding, RuledOut
from core.health.gap_pattern import rank_correlation
from core.health.integrity import worst_integrity
from core.health.learning_rate import too_large
from core.health.onset import number
from core.health.trend import chance_beyond, trend

FIRST = 8  # steps whose reward is compared with the evaluation before them
LEAST = 4
NEAR, APART = 3.0, 6.0  # standard errors
STEADY = 5.0  # standard errors of a slope
LOST = 0.1  # of the reward's own standard deviation inside a step, at least: less matters to nobody


def reward_sign(case: Case) -> Sequence[Finding]:
    """An error where training and evaluation pay mirrored rewards, a warning where the reward falls as if asked to."""
    return _mirrored(case) or _falling(case)


def _mirrored(case: Case) -> Sequence[Finding]:
    start = next(((r, e) for r in case.rows if (e := number(r, "eval/reward")) is not None), None)
    if start is None or (start[0].get("step") or 0) > 0:
        return ()
    evaluated, own_se = start[1], number(start[0], "eval/reward_se") or 0.0
    paid = [value for row in case.stage_rows[:FIRST] if (value := number(row, "reward/mean")) is not None]
    if len(paid) < LEAST:
        return ()
    mean, se = fmean(paid), math.hypot(stdev(paid) / math.sqrt(len(paid)), own_se)
    if mean * evaluated >= 0 or abs(mean + evaluated) > NEAR * se or abs(mean - evaluated) < APART * se:
        return ()
    return (
        Finding(
            id="reward-sign",
            severity="error",
            summary=(
                f"the first {len(paid)} steps were paid {mean:.3g} on average and the evaluation before them "
                f"{evaluated:.3g}: the same policy, minus its reward; it learns to earn less"
            ),
            evidence={
                "paid": mean,
                "evaluated": evaluated,
                "se": se,
                "sum_in_se": (mean + evaluated) / se if se else 0.0,
            },
            rules_out=(RuledOut(id="reward-hacking", why="what rises is minus the reward"),),
            advice="look for a minus between the reward function and the trainer; a loss is no reward",
            confidence="moderate",
            decider=Decider(question="does a completion known to be good earn more than a bad one?"),
        ),
    )


def _falling(case: Case) -> Sequence[Finding]:
    """Silent where something else makes rewards fall: an unsound sampler, or a rate that breaks the policy."""
    rows = [row for row in case.stage_rows if number(row, "reward/mean") is not None]
    dtype, limit = case.settings.dtype or "float32", case.guards.max_logprob_gap
    if len(rows) < 4 * LEAST or worst_integrity(case.rows, dtype=dtype, override=limit) or too_large(case):
        return ()
    points = [(row["step"] or 0.0, number(row, "reward/mean") or 0.0) for row in rows]
    line = trend(points)
    spread = fmean([value for row in rows if (value := number(row, "reward/std")) is not None] or [0.0])
    lost = -(line.slope * (points[-1][0] - points[0][0])) if line is not None else 0.0
    kls = [(row["step"] or 0.0, value) for row in rows if (value := number(row, "kl")) is not None]
    away = rank_correlation(*zip(*kls, strict=True)) if len(kls) > LEAST else 0.0
    if line is None or line.z > -STEADY or lost <= LOST * spread or away < 0.5:
        return ()
    return (
        Finding(
            id="reward-sign",
            severity="warning",
            summary=(
                f"the training reward falls steadily, by {lost:.3g} over {len(points)} steps (z = {line.z:.1f}), while "
                f"the KL grows (rank correlation {away:.2f}): the policy learns, and in the wrong direction"
            ),
            evidence={
                "slope": line.slope,
                "z": line.z,
                "p": chance_beyond(line.z),
                "lost": lost,
                "kl_correlation": away,
            },
            advice="look for a flipped sign: of the reward, of the advantage, or of the loss",
            confidence="weak",
            decider=Decider(question="does the reward rise with the sign of the rewards turned round?"),
        ),
    )
