"""What logs say without evaluations and steps to compare: a table of five means, first and last values, a flat reward.

Rules on steps ask for many of them. Here the size of a change speaks, its order, and what else changed with it, so that
nothing is more than a warning. Not here: the KL, entropy and gradients of few rows (kl_level, runaway).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, median

from core.health.case import Case
from core.health.coverage import ROWS
from core.health.finding import Confidence, Decider, Finding, Row, RuledOut
from core.health.rules.gains import evaluations
from core.health.statistics import chance_above, series, trend
from core.health.steps import number, values_of

FEWEST = 3  # values: two have no order
APART = 5  # steps between two rows: their values are means of many completions, or picked as telling
LOST = 0.25  # of the reward before, at most: what is left after a fall
MOVED = 10.0  # times: what else left its level with the reward
FAR = 0.5  # nats a token
CUT = 0.4  # of the completions, more than before
SIGNIFICANT = 1e-3
MANY, LONG = 20, 50  # rows, and steps that they stand for: fewer do not show that nothing rises
SOLVED = 0.85  # of the largest reward: what has so much has little to gain
WORSE = 0.15  # of the first evaluation, and ...
WORSE_BY = 0.04  # ... of all answers: less is noise of a hundred questions
ROSE = 0.1  # of the training reward's first level


def fell_in_few(case: Case) -> Sequence[Finding]:
    """A warning where the reward fell to a quarter or less between a few rows, and stayed; documented with the break
    that no limit names (policy_collapse).
    """
    rows = [row for row in case.stage_rows if number(row, "reward/mean") is not None]
    rewards = values_of(rows, "reward/mean")
    if not FEWEST <= len(rewards) <= 2 * ROWS or min(rewards) < 0:
        return ()
    at = next((at for at in range(1, len(rewards)) if max(rewards[at:]) <= LOST * _level(rewards[:at])), None)
    if at is None or (len(rewards) > FEWEST + 1 and len(rewards) - at < 2):
        return ()
    before, since = rows[:at], rows[at:]
    with_it = _moved(before, since)
    if not with_it and not (case.averaged_over >= APART and at > 1):
        return ()
    was, now = _level(rewards[:at]), fmean(rewards[at:])
    first = int(since[0].get("step") or 0)
    return (
        Finding(
            id="policy-collapse",
            severity="warning",
            summary=(
                f"the reward fell from {was:.3g} to {now:.3g} at row {at + 1} of {len(rewards)} (step {first}) and "
                f"stayed there{''.join(f'; {change}' for change in with_it)}: the policy broke, or the prompts changed"
            ),
            evidence={"kind": "unknown", "was": was, "now": now, "first_step": first, "rows": len(rewards)},
            advice="go back to a checkpoint before the fall, with a smaller learning rate or a larger beta",
            confidence="moderate" if with_it else "weak",
            decider=Decider(question="what does the checkpoint before the fall earn on the prompts after it?"),
        ),
    )


def _level(values: Sequence[float]) -> float:
    """What the reward was: the least of two, the median of more, so that one good row is no level."""
    return min(values) if len(values) < FEWEST else median(values)


def _moved(before: Sequence[Row], since: Sequence[Row]) -> list[str]:
    """What else left its level there, in words."""
    words = []
    for name, floor in (("kl", FAR), ("grad_norm", MOVED)):
        was, now = values_of(before, name), values_of(since, name)
        if was and now and median(now) >= max(floor, MOVED * median(was)):
            words.append(f"{name} from {median(was):.3g} to {median(now):.3g}")
    for name in ("entropy", "completions/length"):
        was, now = values_of(before, name), values_of(since, name)
        if was and now and median(was) > 0 and not 0.2 <= median(now) / median(was) <= 5:
            words.append(f"{name} from {median(was):.3g} to {median(now):.3g}")
    was, now = values_of(before, "completions/truncated"), values_of(since, "completions/truncated")
    if was and now and median(now) - median(was) >= CUT:
        words.append(f"completions/truncated from {median(was):.3g} to {median(now):.3g}")
    return words


def reward_stood(case: Case) -> Sequence[Finding]:
    """An info where the training reward is no better at the end of a log, and no evaluation says otherwise;
    documented with `no-gain`.
    """
    rows = [row for row in case.stage_rows if number(row, "reward/mean") is not None]
    points = series(rows, "reward/mean")
    if len(rows) < MANY or len(rows) * case.averaged_over < LONG or evaluations(case) or case.stages:
        return ()
    line, values = trend(points), [value for _, value in points]
    early, late = (fmean(part) for part in (values[: len(values) // 3], values[-(len(values) // 3) :]))
    most = max([*values, *values_of(rows, "reward/max"), 1.0 if min(values) >= 0 else 0.0])
    held_out = [value for _, value in series(case.rows, "eval/reward")]
    gained = len(held_out) > 1 and held_out[-1] > held_out[0]
    if line is None or line.z >= 1 or late > early or early >= SOLVED * most or max(values) == min(values) or gained:
        return ()
    steps = len(rows) * case.averaged_over
    return (
        Finding(
            id="no-gain",
            severity="info",
            summary=(
                f"reward/mean did not rise in {steps} steps: {early:.3g} in the first third, {late:.3g} in the last "
                f"(trend {line.z:+.1f} standard errors): nothing was gained, or it needs more steps than these"
            ),
            evidence={"early": early, "late": late, "trend_z": line.z, "rows": len(rows), "steps": steps},
            advice="see how many groups are live, whether the KL moves at all, and what the reward pays for",
            confidence="weak",
            decider=Decider(question="does it rise with three times the learning rate, or with easier prompts?"),
        ),
    )


def held_out_fell(case: Case) -> Sequence[Finding]:
    """A warning where evaluations fall from one to the next and no standard error says by how much they may.

    `overfitting` where the training reward rose meanwhile, else `no-gain`; documented with those.
    """
    points = series(case.rows, "eval/reward")
    if len(evaluations(case)) > 1 or len(points) < FEWEST:
        return ()
    values = [value for _, value in points]
    line = trend(points)
    third = max(1, len(values) // 3)
    was, now = fmean(values[:third]), fmean(values[-third:])
    in_order = line is None and all(b < a for a, b in pairwise(values))
    clear = line is not None and chance_above(-line.z) < SIGNIFICANT
    if was - now < max(WORSE * abs(was), WORSE_BY) or not (in_order or clear):
        return ()
    rewards = [value for step, value in series(case.stage_rows, "reward/mean") if step >= points[0][0]]
    third = max(1, len(rewards) // 3)
    early, late = (fmean(rewards[:third]), fmean(rewards[-third:])) if len(rewards) > 1 else (0.0, 0.0)
    rose = late - early > ROSE * abs(early)
    trained = f" while reward/mean rose from {early:.3g} to {late:.3g}" if rose else ""
    confidence: Confidence = "moderate" if clear else "weak"
    return (
        Finding(
            id="overfitting" if rose else "no-gain",
            severity="warning",
            summary=(
                f"eval/reward fell from {was:.3g} to {now:.3g} over {len(values)} evaluations{trained}: what is "
                "learned does not hold on held-out prompts (no standard error is known)"
            ),
            evidence={"first": values[0], "last": values[-1], "evaluations": len(values), "early": early, "late": late},
            rules_out=(RuledOut(id="missed-stop", why="the evaluations fall from the first on"),) if in_order else (),
            advice="keep the checkpoint of the best evaluation; read samples of the last: a reward may be gamed",
            confidence=confidence,
            decider=Decider(question="is it there with five times as many evaluation prompts?"),
        ),
    )
