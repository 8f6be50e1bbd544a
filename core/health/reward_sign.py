"""Is the policy taught to earn less? By the curves alone; core.health.advantage_mismatch says it surely.

Three pictures. Evaluations fall along minus what training pays, while that rises: a sign was flipped on the way to the
trainer. The first steps are paid minus what the evaluation before them paid: perhaps, since prompts can differ so. Or
the training reward falls steadily while the policy moves away from its start, soundly: it follows its gradient the
wrong way.

## reward-sign

Severity: error (certain) by the samples' advantages; by curves alone error (moderate), warning (moderate) or warning
(weak).

Means: the policy is taught to earn less: a sign is flipped between the reward function and the loss.

Looks at: the advantages computed again from the samples (`advantage-mismatch`): minus the recomputed ones on every
step. By curves alone, one of three patterns:

- Error (moderate): three or more evaluations, each minus what the steps around it were paid (3 standard errors), fall
  while that rises.
- Warning (moderate): the first steps are paid minus what the evaluation before them was (within 3 standard errors,
  and 6 from being equal), with no update between.
- Warning (weak): the training reward falls (slope below -5 standard errors, widened by sqrt((1 + rho) / (1 - rho))
  for the lag-1 correlation of its residuals) while the KL grows, the sampler is sound, evaluations do not rise, the
  learning rate did not break the policy and no guard's limit was broken for good.

Confounder: training prompts that are harder than those of evaluation (second pattern), and prompts that get harder
during the run (third pattern) look the same.

Do: look for a minus between the reward function and the trainer: of the reward, of the advantage, or of the loss. A
loss is no reward. Score an answer that is known to be good and a bad one.

Measured: 10 of 10 planted faults; TRL runs with negated advantages as under `group-order`. False alarms of the third
pattern on rewards that wander (1,000 simulated runs of 60 steps each, AR(1) with rho 0.8 and 0.9): 1 and 2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, stdev

from core.health.case import Case
from core.health.finding import Decider, Finding, Row, RuledOut, Severity, steps_of
from core.health.gap_pattern import rank_correlation
from core.health.integrity import worst_integrity
from core.health.lasting import breaks
from core.health.learning_rate import too_large
from core.health.onset import acted, number
from core.health.trend import chance_beyond, series, trend

FIRST = 8  # steps whose reward is compared with the evaluation before them
LEAST = 4
COURSE = 3  # evaluations that fall while the reward that is paid rises
NEAR, APART = 3.0, 6.0  # standard errors
STEADY = 5.0  # standard errors of a slope
LOST = 0.1  # of the reward's own standard deviation inside a step, at least: less matters to nobody


@dataclass(frozen=True, kw_only=True, slots=True)
class Beside:
    """An evaluation and the training reward of the steps next to it; `se`: of their sum, or their difference."""

    step: int
    evaluated: float
    paid: float
    se: float
    steps: int

    @property
    def mirrored(self) -> bool:
        """Whether one is minus the other, and they are not equal."""
        near, apart = abs(self.paid + self.evaluated), abs(self.paid - self.evaluated)
        return self.paid * self.evaluated < 0 and near <= NEAR * self.se and apart >= APART * self.se


def reward_sign(case: Case) -> Sequence[Finding]:
    """An error where evaluations fall along minus the reward that is paid; a warning where they only begin mirrored,
    or the reward falls as if asked to.
    """
    return _course(case) or _mirrored(case) or _falling(case)


def _course(case: Case) -> Sequence[Finding]:
    """Several evaluations, minus what the steps around each were paid, and the two move apart."""
    line = trend(series(case.stage_rows, "reward/mean"))
    if case.averaged_over > 1 or line is None or line.z < STEADY:
        return ()
    evaluated = [row for row in case.rows if number(row, "eval/reward") is not None]
    found = [one for row in evaluated if (one := _around(case, row)) is not None]
    if len(found) < max(COURSE, len(evaluated) - 1) or _slope_z(found) > -NEAR:
        return ()
    first, last = found[0], found[-1]
    whole = Beside(
        step=last.step,
        evaluated=fmean(one.evaluated for one in found),
        paid=fmean(one.paid for one in found),
        se=math.hypot(*(one.se for one in found)) / len(found),
        steps=sum(one.steps for one in found),
    )
    if not whole.mirrored or any(abs(one.paid + one.evaluated) > NEAR * one.se for one in found):
        return ()
    said = (
        f"{len(found)} evaluations fell from {first.evaluated:.3g} to {last.evaluated:.3g} while the steps around them "
        f"were paid {first.paid:.3g} to {last.paid:.3g}: minus the reward is what is learned from"
    )
    evidence = {"evaluations": float(len(found)), "paid_z": line.z, "evaluated_z": _slope_z(found)}
    return (_flipped(said, evidence | {"paid": whole.paid, "evaluated": whole.evaluated}, "error"),)


def _slope_z(found: Sequence[Beside]) -> float:
    """The slope of the evaluations over steps, in standard errors as each evaluation has its own."""
    mean = fmean(one.step for one in found)
    spread = math.fsum((one.step - mean) ** 2 for one in found)
    rise = math.fsum((one.step - mean) * one.evaluated for one in found)
    se = fmean(one.se for one in found) * math.sqrt(spread)
    return rise / se if se > 0 else 0.0


def _around(case: Case, row: Row) -> Beside | None:
    """The evaluation beside the steps next to it, on either side; None where there are too few."""
    step = row.get("step") or 0
    near = sorted(case.stage_rows, key=lambda one: abs((one["step"] or 0) - step - 0.5))[:FIRST]
    return _beside(row, [one for one in near if abs((one["step"] or 0) - step) <= FIRST])


def _beside(row: Row, steps: Sequence[Row]) -> Beside | None:
    paid = [value for one in steps if (value := number(one, "reward/mean")) is not None]
    evaluated, own_se = number(row, "eval/reward"), number(row, "eval/reward_se") or 0.0
    if evaluated is None or len(paid) < LEAST:
        return None
    se = math.hypot(stdev(paid) / math.sqrt(len(paid)), own_se)
    return Beside(step=int(row.get("step") or 0), evaluated=evaluated, paid=fmean(paid), se=se, steps=len(paid))


def _mirrored(case: Case) -> Sequence[Finding]:
    """The first steps against the evaluation before them, with no update between: the same policy."""
    start = next((row for row in case.rows if number(row, "eval/reward") is not None), None)
    steps = case.stage_rows[:FIRST]
    if start is None or (start.get("step") or 0) > 0 or not steps:
        return ()
    if any(acted(row) for row in steps_of(case.rows) if (row["step"] or 0) < (steps[0]["step"] or 0)):
        return ()
    found = _beside(start, steps)
    if found is None or not found.mirrored:
        return ()
    said = (
        f"the first {found.steps} steps were paid {found.paid:.3g} on average and the evaluation before them "
        f"{found.evaluated:.3g}: minus its reward, or prompts that differ so much"
    )
    near = (found.paid + found.evaluated) / found.se if found.se else 0.0
    evidence = {"paid": found.paid, "evaluated": found.evaluated, "se": found.se, "sum_in_se": near}
    return (_flipped(said, evidence, "warning"),)


def _flipped(said: str, evidence: dict[str, float], severity: Severity) -> Finding:
    return Finding(
        id="reward-sign",
        severity=severity,
        summary=said,
        evidence=evidence,
        rules_out=(RuledOut(id="reward-hacking", why="what rises is minus the reward"),) if severity == "error" else (),
        advice="look for a minus between the reward function and the trainer; a loss is no reward",
        confidence="moderate",
        decider=Decider(question="does a completion known to be good earn more than a bad one?"),
    )


def _falling(case: Case) -> Sequence[Finding]:
    """Silent where something else makes rewards fall: an unsound sampler, a rate that breaks the policy, a limit that
    was broken for good, prompts that get harder while evaluations rise.
    """
    rows = [row for row in case.stage_rows if number(row, "reward/mean") is not None]
    dtype, limit = case.settings.dtype, case.guards.max_logprob_gap
    if len(rows) < 4 * LEAST or worst_integrity(case.rows, dtype=dtype, override=limit) or case.once(too_large):
        return ()
    if breaks(case) or _rises([value for _, value in series(case.rows, "eval/reward")]):
        return ()
    points = [(row["step"] or 0.0, number(row, "reward/mean") or 0.0) for row in rows]
    line = trend(points)
    spread = fmean([value for row in rows if (value := number(row, "reward/std")) is not None] or [0.0])
    lost = -(line.slope * (points[-1][0] - points[0][0])) if line is not None else 0.0
    kls = [(row["step"] or 0.0, value) for row in rows if (value := number(row, "kl")) is not None]
    away = rank_correlation(*zip(*kls, strict=True)) if len(kls) > LEAST else 0.0
    z = line.z / _too_narrow(points, line.slope) if line is not None else 0.0
    if line is None or z > -STEADY or lost <= LOST * spread or away < 0.5:
        return ()
    return (
        Finding(
            id="reward-sign",
            severity="warning",
            summary=(
                f"the training reward falls steadily, by {lost:.3g} over {len(points)} steps (z = {z:.1f}), while "
                f"the KL grows (rank correlation {away:.2f}): the policy learns in the wrong direction, or prompts get "
                "harder"
            ),
            evidence={
                "slope": line.slope,
                "z": z,
                "p": chance_beyond(z),
                "lost": lost,
                "kl_correlation": away,
            },
            advice="look for a flipped sign: of the reward, of the advantage, or of the loss",
            confidence="weak",
            decider=Decider(question="does the reward rise with the sign of the rewards turned round?"),
        ),
    )


def _rises(evaluations: Sequence[float]) -> bool:
    """Whether the later half of them is the better one."""
    half = len(evaluations) // 2
    return half > 0 and fmean(evaluations[-half:]) > fmean(evaluations[:half])


def _too_narrow(points: Sequence[tuple[float, float]], slope: float) -> float:
    """How many times too small a slope's standard error is, its points not being independent of their neighbours.

    sqrt((1 + rho) / (1 - rho)) of the lag-1 correlation of what the line leaves, which n points and a fitted line make
    too small by (2 + 4 rho) / n (Kendall 1954, with the slope's part); at least 1.
    """
    mean_x, mean_y, n = fmean(x for x, _ in points), fmean(y for _, y in points), len(points)
    left = [y - mean_y - slope * (x - mean_x) for x, y in points]
    spread = math.fsum(one * one for one in left)
    rho = math.fsum(a * b for a, b in pairwise(left)) / spread if spread > 0 else 0.0
    rho = min(max(rho + (2 + 4 * rho) / n, 0.0), 0.98)
    return math.sqrt((1 + rho) / (1 - rho))
