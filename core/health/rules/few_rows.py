"""What logs say without evaluations and steps to compare: a table of five means, first and last values, a flat reward.

Rules on steps ask for many of them. Here the size of a change speaks, its order, and what else changed with it, so that
nothing is more than a warning. Not here: the KL, entropy and gradients of few rows (kl_level, runaway).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from statistics import fmean, median

from core.health.case import Case
from core.health.coverage import ROWS
from core.health.finding import Confidence, Decider, Finding, Row, RuledOut
from core.health.rules.gains import evaluations
from core.health.statistics import chance_above, series, shown_z, thirds, told_z, trend
from core.health.steps import LITTLE, STOOD, held_out_rose, number, spread, values_of

FEWEST = 3  # values: two have no order
APART = 5  # steps between two rows: their values are means of many completions, or picked as telling
LOST = 0.25  # of the reward before, at most: what is left after a fall
MOVED = 10.0  # times: what else left its level with the reward
OTHER = 3.0  # times, either way, of lengths and entropies
FAR = 0.5  # nats a token
HALVED, NEVER = 0.5, 0.6  # of the reward before: their median and the most of the rows since, with two other changes
WEAKLY = 2.0  # times, either way: what else changed then
NEARER = 0.05  # nats a token: a KL that reached it from a tenth of it
LONGER = 0.1  # of the completions cut off, more than before
GONE, GONE_ROWS = 0.02, 3  # of the reward, over so many rows: a fall that needs nothing beside it
FORMED = 0.2  # of the completions are valid: what can be lost
CLEARLY = 3.0  # standard errors of the fall: rows of a few completions each fall to half by chance
SAME = 0.05  # nats a token: a policy that is where it was
CUT = 0.4  # of the completions, more than before
SIGNIFICANT = 1e-3
MANY, LONG = 10, 50  # rows; and steps that a few rows far apart stand for: fewer do not show that nothing rises
RISES, FALLS = 2.0, -4.0  # standard errors of a line: told from noise, and beyond doubt
SINKS = -1.5  # the same, where half is lost and lengths or entropies left their level with it
MUCH = 0.25  # of the early reward, or of a step's own deviation: so much lost is worth a warning
UNIT = 0.1  # of a reward, at least: where it is around 0 no share of it means anything
SCATTERS = 1.5  # times the spread of a few values: between their first and last third no more than that is a rise
AT_ONCE = 3.0  # times the spread of all later values: the first was left at once, and for good
SOLVED = 0.95  # of the largest reward: what has so much has nothing to gain
KNOWN_BY_HEART = 0.9  # of the training answers are right, and so much more than of held-out ones:
APART_BY = 0.25
WORLDS_APART = 0.5  # of the training reward above a held-out one that never left 0
WORSE = 0.15  # of the first evaluation, and ...
WORSE_BY = 0.04  # ... of all answers: less is noise of a hundred questions
PARTED = 0.7  # of every evaluation before, at most: two or more before, and three or more since
ROSE = 0.1  # of the training reward's first level


def fell_in_few(case: Case) -> Sequence[Finding]:
    """A warning where the reward fell to a quarter or less between a few rows, and stayed; documented with the break
    that no limit names (policy_collapse).
    """
    judged_by, rewarded = _rewarded(case.stage_rows)
    rows = [row for row in rewarded if number(row, "reward/mean") is not None]
    rewards = values_of(rows, "reward/mean")
    if not FEWEST <= len(rewards) <= 2 * ROWS or min(rewards) < 0:
        return ()
    falls = (at for at in range(1, len(rewards)) if max(rewards[at:]) <= LOST * _level(rewards[:at]))
    at = next((at for at in falls if _level(rewards[:at]) > 0), None)
    if at is None or (len(rewards) > FEWEST + 1 and len(rewards) - at < 2):
        return _halved(rows, rewards, judged_by)
    before, since = rows[:at], rows[at:]
    with_it = _moved(before, since)
    gone = len(since) >= GONE_ROWS and max(rewards[at:]) <= GONE * _level(rewards[:at])
    if not with_it and not gone and not (case.averaged_over >= APART and at > 1):
        return ()
    kls = values_of(rows, "kl")
    if with_it and len(kls) == len(rows) and min(kls) >= 0 and max(kls) < SAME:
        return (_drawn_elsewhere(rows, at, with_it, max(kls), judged_by),)
    return (_fallen(rows, at, with_it, judged_by),)


def _rewarded(rows: Sequence[Row]) -> tuple[str, Sequence[Row]]:
    """What the rows are judged by, and they; where none has a reward, the share of right answers stands for it."""
    if any("reward/mean" in row for row in rows):
        return "the reward", rows
    return "the share of right answers", [{**row, "reward/mean": row.get("rewards/accuracy")} for row in rows]


def valid_fell_in_few(case: Case) -> Sequence[Finding]:
    """A warning where valid completions fell to half or less between a few rows far apart, and stayed; documented with
    `policy-collapse`.
    """
    rows = [row for row in case.stage_rows if number(row, "completions/valid") is not None]
    valid, steps = values_of(rows, "completions/valid"), _steps_of(case, series(rows, "completions/valid"))
    if not FEWEST < len(valid) <= 2 * ROWS or steps < APART * len(valid):
        return ()
    at = next((at for at in range(1, len(valid) - 1) if _lost_half(valid[:at], valid[at:])), None)
    if at is None:
        return ()
    was, now, first = _level(valid[:at]), fmean(valid[at:]), int(rows[at].get("step") or 0)
    early, late = values_of(rows[:at], "reward/mean"), values_of(rows[at:], "reward/mean")
    rose = bool(early and late) and fmean(late) > fmean(early)
    paid = "; the reward rose meanwhile, so it pays for what is not valid" if rose else ""
    with_it = "".join(f"; {change}" for change in _moved(rows[:at], rows[at:]))
    return (
        Finding(
            id="policy-collapse",
            severity="warning",
            summary=(
                f"valid completions fell from {was:.0%} to {now:.0%} at row {at + 1} of {len(rows)} (step {first}) and "
                f"stayed there{with_it}{paid}: the policy broke, or the prompts changed"
            ),
            evidence={"kind": "unknown", "was": was, "now": now, "first_step": first, "rows": len(rows)},
            advice="read samples from before and after it; go back to a checkpoint before the fall",
            confidence="weak",
            decider=Decider(question="does the checkpoint before the fall still write valid answers to these prompts?"),
        ),
    )


def _lost_half(before: Sequence[float], since: Sequence[float]) -> bool:
    """Whether what was valid fell to half for good, and by more than the rows of either side scatter."""
    level, fall = _level(before), fmean(before) - fmean(since)
    error = spread(before, since) * (1 / len(before) + 1 / len(since)) ** 0.5
    halved = median(since) <= HALVED * level and max(since) <= NEVER * level
    return level >= FORMED and halved and fall > CLEARLY * error


def _halved(rows: Sequence[Row], rewards: Sequence[float], judged_by: str) -> Sequence[Finding]:
    """A fall to half with two rows or more on either side, where two other columns left their level with it."""
    for at in range(2, len(rewards) - 1):
        level = _level(rewards[max(0, at - FEWEST) : at])  # what it had learned by then
        if 0 < level >= median(rewards[at:]) / HALVED and max(rewards[at:]) <= NEVER * level:
            with_it = _changed(rows[:at], rows[at:])
            return (_fallen(rows, at, with_it, judged_by),) if len(with_it) > 1 else ()
    return ()


def _fallen(rows: Sequence[Row], at: int, with_it: Sequence[str], judged_by: str) -> Finding:
    rewards, since = values_of(rows, "reward/mean"), rows[at:]
    was, now = _level(rewards[:at]), fmean(rewards[at:])
    first = int(since[0].get("step") or 0)
    return Finding(
        id="policy-collapse",
        severity="warning",
        summary=(
            f"{judged_by} fell from {was:.3g} to {now:.3g} at row {at + 1} of {len(rewards)} (step {first}) and "
            f"stayed there{''.join(f'; {change}' for change in with_it)}: the policy broke, or the prompts changed"
        ),
        evidence={"kind": "unknown", "was": was, "now": now, "first_step": first, "rows": len(rewards)},
        advice="go back to a checkpoint before the fall, with a smaller learning rate or a larger beta",
        confidence="moderate" if with_it else "weak",
        decider=Decider(question="what does the checkpoint before the fall earn on the prompts after it?"),
    )


def _drawn_elsewhere(rows: Sequence[Row], at: int, with_it: Sequence[str], kl: float, judged_by: str) -> Finding:
    """The fall of a reward while the trainer's policy is still near its reference; documented with the sampler's."""
    rewards = values_of(rows, "reward/mean")
    was, now, first = _level(rewards[:at]), fmean(rewards[at:]), int(rows[at].get("step") or 0)
    return Finding(
        id="sampler-mismatch",
        severity="warning",
        summary=(
            f"{judged_by} fell from {was:.3g} to {now:.3g} at step {first} and stayed there; {'; '.join(with_it)}; "
            f"the KL to the reference never was above {kl:.2g}: the policy is where it was, what "
            "is drawn is not, so the sampler has other weights, or the prompts changed"
        ),
        evidence={"was": was, "now": now, "first_step": first, "rows": len(rewards), "kl": kl},
        rules_out=(
            RuledOut(id="policy-collapse", why=f"the KL to the reference is {kl:.2g} at most"),
            RuledOut(id="learning-rate", why=f"the KL to the reference is {kl:.2g} at most"),
        ),
        advice="score the sampler's completions with the trainer's weights; check what arrived after the last sync",
        confidence="moderate",
        decider=Decider(
            question="does the trainer's own sampling earn the reward of before?",
            overrides=("guards.rollout_integrity=stop",),
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
        if was and now and median(was) > 0 and not 1 / OTHER <= median(now) / median(was) <= OTHER:
            words.append(f"{name} from {median(was):.3g} to {median(now):.3g}")
    was, now = values_of(before, "completions/truncated"), values_of(since, "completions/truncated")
    if was and now and median(now) - median(was) >= CUT:
        words.append(f"completions/truncated from {median(was):.3g} to {median(now):.3g}")
    return words


def _changed(before: Sequence[Row], since: Sequence[Row]) -> list[str]:
    """The same by weaker limits, which count where two columns are beyond them."""
    words = []
    for name in ("entropy", "completions/length", "grad_norm"):
        was, now = values_of(before, name), values_of(since, name)
        if was and now and median(was) > 0 and not 1 / WEAKLY < median(now) / median(was) < WEAKLY:
            words.append(f"{name} from {median(was):.3g} to {median(now):.3g}")
    for name, floor in (("kl", NEARER), ("policy/kl_old", NEARER / 10)):
        was, now = values_of(before, name), values_of(since, name)
        if was and now and median(now) >= max(floor, MOVED * median(was)):
            words.append(f"{name} from {median(was):.3g} to {median(now):.3g}")
    was, now = values_of(before, "completions/truncated"), values_of(since, "completions/truncated")
    if was and now and median(now) - median(was) >= LONGER:
        words.append(f"completions/truncated from {median(was):.3g} to {median(now):.3g}")
    return words


def reward_fell(case: Case) -> Sequence[Finding]:
    """A warning where the training reward falls all along, and no evaluation says otherwise; documented with
    `policy-collapse`.
    """
    if case.stages or len(series(case.rows, "eval/reward")) > 1:
        return ()
    column, points = _judged_by(case, ())
    line, values = trend(points), [value for _, value in points]
    early, late = thirds(values) if len(values) >= FEWEST else (0.0, 0.0)
    with_it = _moved(*_ends(case.stage_rows)) if len(values) >= MANY else []
    halved = bool(with_it) and 0 <= late <= HALVED * early
    if line is None or line.z > (SINKS if halved else FALLS):
        return ()
    if early - late < MUCH * max(abs(early), UNIT, *values_of(case.stage_rows, "reward/std")[:1]):
        return ()
    beside = "".join(f"; {change}" for change in with_it)
    return (
        Finding(
            id="policy-collapse",
            severity="warning",
            summary=(
                f"{column} falls from {early:.3g} in the first third to {late:.3g} in the last (trend "
                f"{shown_z(line.z)}){beside}, and it is what the policy is trained on: the policy loses what it could, "
                "or prompts or the reward became harder meanwhile"
            ),
            evidence={"early": early, "late": late, "rows": len(values), "trend_z": told_z(line.z), "metric": column},
            advice="ask the first and the last checkpoint the same prompts; see what KL and entropy did meanwhile",
            confidence="weak",
            decider=Decider(question="do the same prompts earn less at the end than at the start?"),
        ),
    )


def _ends(rows: Sequence[Row]) -> tuple[Sequence[Row], Sequence[Row]]:
    """The first and the last third of the rows."""
    third = len(rows) // 3
    return rows[:third], rows[-third:]


def reward_stood(case: Case) -> Sequence[Finding]:
    """An info where the training reward is no better at the end of a log, and no evaluation says otherwise;
    documented with `no-gain`.
    """
    if evaluations(case) or case.stages or reward_fell(case) or held_out_fell(case):
        return ()
    held_out = series(case.rows, "eval/reward")
    column, points = _judged_by(case, held_out)
    steps = _steps_of(case, points)
    apart = len(points) >= APART - 1 and steps >= LONG and steps >= APART * len(points)
    if not apart and (len(points) < MANY or steps < MANY):
        return ()
    line, values = trend(points), [value for _, value in points]
    early, late = thirds(values)
    most = max([*values, *values_of(case.stage_rows, "reward/max"), 1.0 if min(values) >= 0 else 0.0])
    rises = line.z >= RISES if line is not None else _rise(values)
    rises = rises or (len(values) < 2 * MANY and _rose_at_once(values))
    if rises or early >= SOLVED * most or max(values) == min(values):
        return ()
    if column != "eval/reward" and len(held_out) > 1 and held_out[-1][1] > held_out[0][1]:
        return ()
    how = "" if line is None else f" (trend {shown_z(line.z)})"
    return (
        Finding(
            id="no-gain",
            severity="info",
            summary=(
                f"{column} {'rose by no more than noise' if late > early else 'did not rise'} in {steps} steps: "
                f"{early:.3g} in the first third, {late:.3g} in the last{how}: "
                "nothing was gained, or it needs more steps than these"
            ),
            evidence={
                "early": early,
                "late": late,
                "rows": len(points),
                "steps": steps,
                **({} if line is None else {"trend_z": told_z(line.z)}),
            },
            advice="see how many groups are live, whether the KL moves at all, and what the reward pays for",
            confidence="weak",
            decider=Decider(question="does it rise with three times the learning rate, or with easier prompts?"),
        ),
    )


def _rise(values: Sequence[float]) -> bool:
    """Whether the last third of a few values is above the first by more than they scatter."""
    early, late = thirds(values)
    return late - early > max(LITTLE * abs(early), SCATTERS * spread(values))


def _rose_at_once(values: Sequence[float]) -> bool:
    """Whether all later values are so far above the first that a line through them does not tell of it."""
    first, *later = values
    return fmean(later) - first > max(LITTLE * abs(first), AT_ONCE * spread(later))


def _judged_by(case: Case, held_out: Sequence[tuple[float, float]]) -> tuple[str, list[tuple[float, float]]]:
    """What a run is judged by, and its course: evaluations, where four or more are there, else the training reward,
    else the mean of the reward's parts where a log has only those.
    """
    if len(held_out) >= APART - 1:
        return "eval/reward", list(held_out)
    rows = case.stage_rows
    if points := series(rows, "reward/mean"):
        return "reward/mean", points
    parts = sorted({name for row in rows for name in row if name.startswith("rewards/")})
    whole = [row for row in rows if parts and all(number(row, name) is not None for name in parts)]
    means = [(float(row.get("step") or 0), fmean(number(row, name) or 0.0 for name in parts)) for row in whole]
    return f"the mean of {', '.join(parts)}", means


def _steps_of(case: Case, points: Sequence[tuple[float, float]]) -> int:
    """Steps that the points stand for: each for so many as they are apart."""
    if len(points) < 2 or not case.numbered:
        return len(points) * case.averaged_over
    distances = [after - before for (before, _), (after, _) in pairwise(points)]
    return max(len(points) * case.averaged_over, int(median(distances) * len(points)))


def held_out_fell(case: Case) -> Sequence[Finding]:
    """A warning where evaluations fall from one to the next and no standard error says by how much they may.

    `overfitting` where the training reward rose meanwhile, else `no-gain`; documented with those.
    """
    points = series(case.rows, "eval/reward")
    if len(evaluations(case)) > 1 or len(points) < FEWEST:
        return ()
    values = [value for _, value in points]
    line = trend(points)
    was, now = thirds(values)
    in_order = line is None and all(b < a for a, b in pairwise(values))
    clear = line is not None and chance_above(-line.z) < SIGNIFICANT
    least_so_far, most_from_there = [*accumulate(values, min)], [*accumulate(values[::-1], max)][::-1]
    parted = any(0 < most_from_there[at] <= PARTED * least_so_far[at - 1] for at in range(2, len(values) - 2))
    if was - now < max(WORSE * abs(was), WORSE_BY) or not (in_order or clear or parted):
        return ()
    rewards = [value for step, value in series(case.stage_rows, "reward/mean") if step >= points[0][0]]
    early, late = thirds(rewards) if len(rewards) > 1 else (0.0, 0.0)
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


def held_out_stood(case: Case) -> Sequence[Finding]:
    """An info where evaluations stand while what is trained on rises, or is right throughout; documented with
    `overfitting`.
    """
    held_out = [value for _, value in series(case.rows, "eval/reward")]
    column = "rewards/accuracy" if series(case.stage_rows, "rewards/accuracy") else "reward/mean"
    trained = series(case.stage_rows, column)
    line, held_line = trend(trained), trend(series(case.rows, "eval/reward"))
    if case.stages or line is None or held_line is None:
        return ()
    (was, now), (early, late) = thirds(held_out), thirds([value for _, value in trained])
    if held_line.z >= RISES or held_out_rose(was, now):
        return ()
    at_once = _rose_at_once([value for _, value in trained])
    rose = (line.z >= -FALLS or at_once) and late - early > max(ROSE * abs(early), LITTLE)
    by_heart = column == "rewards/accuracy" and late >= KNOWN_BY_HEART and late - now >= APART_BY
    if not rose and not by_heart:
        return ()
    how = f"{column} rose from {early:.3g} to {late:.3g}" if rose else f"{column} is {late:.3g}"
    return (
        Finding(
            id="overfitting",
            severity="warning" if late - now >= WORLDS_APART and max(abs(was), abs(now)) <= STOOD else "info",
            summary=(
                f"{how}, and eval/reward went from {was:.3g} to {now:.3g} over {len(held_out)} evaluations: what is "
                "learned does not show on held-out prompts, which may be harder, scored otherwise, or too few"
            ),
            evidence={
                "first": was, "last": now, "evaluations": len(held_out), "metric": column, "early": early, "late": late,
            },
            advice="score training prompts and held-out ones in the same way (sampling, parser, limit of tokens) first",
            confidence="weak",
            decider=Decider(question="do the training prompts, asked as the evaluation asks, earn what training says?"),
        ),
    )  # fmt: skip
