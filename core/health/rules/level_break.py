"""A reward or a validity that broke in the middle of a run, for good, though no guard's limit says so.

A guard's limit is a cliff: 97 % cut off is beyond it and 90 % is not. Here the column is held against itself, before
and since, and something else of the policy must have changed with it. Not here: limits
(core.health.rules.breaks), and what the first updates did (core.health.rules.first_updates).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from statistics import fmean, median

from core.health.case import Case
from core.health.finding import Decider, Finding, Row, RuledOut
from core.health.rules.learning_rate import sampler_at_fault, too_large
from core.health.rules.policy_collapse import policy_collapse
from core.health.steps import acted, best_and_last_level, drew, spread, values_of

WINDOW = 10  # steps: the level before is of so many, and what came with the break came within so many
FEW = 5  # steps on either side: fewer show no level
LASTS = 0.9  # of the steps since are nearer to the new level, and of those before to the old one
CLEAR = 4.0  # standard errors of the fall
HALF = 0.5  # of the range of the rewards of the stage, or of the valid completions: what must be lost
FAR, JUMPED = 0.1, 5.0  # nats a token, and times the level before: smooth growth has three times in as many steps
VALID = "completions/valid"
HARMED = (VALID, "reward/mean")


@dataclass(frozen=True, kw_only=True, slots=True)
class Fall:
    """A column that fell to another level at once: the rows of the stage up to there, and since."""

    metric: str
    was: float
    now: float
    error: float  # of the difference
    before: Sequence[Row]
    since: Sequence[Row]


def level_break(case: Case) -> Sequence[Finding]:
    """An error where validity or the reward fell for good and the KL jumped there; a warning where no KL is known and
    entropy or length changed with it, as they do where prompts change; and where validity fell and a KL did not jump.

    Silent where another rule says what broke, where a reward fell and no KL jumped, as with harder prompts, and where
    evaluations are no worse since.

    ## validity-fell

    Severity: warning (moderate).

    Means: `completions/valid` fell at one step and did not come back, while a known KL to the start did not jump:
    prompts, their template, the validity check or the sampler changed, and hardly the policy.

    Looks at: the break that no limit names, described under `policy-collapse`.

    Confounder: a policy that changed much without a jump of the KL: unlikely at that size, not excluded.

    Do: compare the prompts and samples of the steps just before and just after.
    """
    fall = next((drop for metric in HARMED if (drop := _fall(case, metric)) is not None), None)
    if fall is None or sampler_at_fault(case) or case.once(too_large) or case.once(policy_collapse):
        return ()
    kl, with_it = _jump(fall), _changed(fall)
    unknown = not values_of([*fall.before[-WINDOW:], *fall.since[:WINDOW]], "kl")
    if not any(map(acted, fall.before)) or _evaluations_hold(case, fall):
        return ()
    if kl is None and not unknown:
        return (_not_the_policy(fall),) if fall.metric == VALID else ()
    return (_finding(case, fall, kl, with_it),) if kl is not None or with_it else ()


LEFT, STILL = 0.5, 2 / 3  # of the best level is left at most: on average, and on any row
SURE_ROWS = 12
FEWEST = {"eval/reward": 6, "reward/mean": SURE_ROWS}  # that show levels


def lost_level(case: Case) -> Sequence[Finding]:
    """A warning where evaluations, or without any the rewards, end at half of their best level or less; not of runs of
    ours, whose guards have limits for it.
    """
    metric = "eval/reward" if len(values_of(case.rows, "eval/reward")) > 1 else "reward/mean"
    values = values_of(case.rows if metric == "eval/reward" else case.stage_rows, metric)
    if case.stages or len(values) < FEWEST[metric] or min(values) < 0:
        return ()
    best, last = best_and_last_level(values)
    noise = math.sqrt(fmean((b - a) ** 2 / 2 for a, b in pairwise(values)))  # of a row, whatever the course
    error = noise * math.sqrt(2 / len(last))
    gone = fmean(last) <= LEFT * fmean(best) and max(last) <= STILL * fmean(best)
    if not gone or fmean(best) - fmean(last) <= CLEAR * error:
        return ()
    held_out = metric == "eval/reward"
    return (
        Finding(
            id="policy-collapse",
            severity="warning",
            summary=(
                f"{metric} was {fmean(best):.3g} at its best and is {fmean(last):.3g} at the end: "
                + ("the policy lost what it could" if held_out else "the policy lost it, or the prompts got harder")
            ),
            evidence={"metric": metric, "best": fmean(best), "last": fmean(last), "se": error, "rows": len(values)},
            advice="go back to the best checkpoint, and see what KL, entropy and lengths did since",
            confidence="strong" if held_out and len(values) >= SURE_ROWS else "moderate",
            decider=Decider(question="does it last with a third of the learning rate?"),
        ),
    )


def _fall(case: Case, metric: str) -> Fall | None:
    rows = [row for row in case.stage_rows if drew(row) and values_of([row], metric)]
    values = values_of(rows, metric)
    at = _parting(values)
    if at is None:
        return None
    before, since = values[max(0, at - WINDOW) : at], values[at:]
    was, now = fmean(before), fmean(since)
    middle, lost = (was + now) / 2, was - now
    error = spread(before, since) * math.sqrt(1 / len(before) + 1 / len(since))
    least = HALF * (was if metric == VALID else max(values) - min(values))
    lasts = min(fmean(value < middle for value in since), fmean(value > middle for value in before)) >= LASTS
    if not lasts or lost < least or lost <= CLEAR * error:
        return None
    return Fall(metric=metric, was=was, now=now, error=error, before=rows[:at], since=rows[at:])


def _parting(values: Sequence[float]) -> int | None:
    """Where two levels, the later one lower, fit best: n1 n2 / n (mean1 - mean2)^2 is largest; None where none does."""
    sums, total, n = list(accumulate(values)), math.fsum(values), len(values)
    places = range(FEW, n - FEW + 1)
    falls = {at: sums[at - 1] / at - (total - sums[at - 1]) / (n - at) for at in places}
    best = max(places, key=lambda at: at * (n - at) * max(falls[at], 0.0) ** 2, default=None)
    return best if best is not None and falls[best] > 0 else None


def _jump(fall: Fall) -> float | None:
    """The KL since, where it went far at once."""
    before, since = values_of(fall.before[-WINDOW:], "kl"), values_of(fall.since[:WINDOW], "kl")
    if not before or not since or median(since) < max(FAR, JUMPED * median(before)):
        return None
    return median(since)


def _changed(fall: Fall) -> list[str]:
    """What else changed there: entropy to a tenth or three times, length as much, cut-off completions by 0.4."""
    changes = []
    for metric, least, most in (("entropy", 0.1, 3.0), ("completions/length", 0.3, 3.0)):
        before, since = values_of(fall.before[-WINDOW:], metric), values_of(fall.since, metric)
        if before and since and not least * median(before) <= median(since) <= most * median(before):
            changes.append(f"{metric} from {median(before):.3g} to {median(since):.3g}")
    before, since = (values_of(part, "completions/truncated") for part in (fall.before[-WINDOW:], fall.since))
    if before and since and median(since) - median(before) > 0.4:
        changes.append(f"completions/truncated from {median(before):.3g} to {median(since):.3g}")
    return changes


def _evaluations_hold(case: Case, fall: Fall) -> bool:
    """Whether evaluations since are on average no worse than the last before: then it is the prompts that changed."""
    step = fall.since[0].get("step") or 0
    then = values_of([row for row in case.rows if (row.get("step") or 0) < step], "eval/reward")
    since = values_of([row for row in case.rows if (row.get("step") or 0) > step], "eval/reward")
    return bool(then) and bool(since) and fmean(since) >= then[-1]


def _not_the_policy(fall: Fall) -> Finding:
    """Validity fell, and the policy went on as before: what it is asked changed, or how it is drawn from or judged."""
    step, kls = int(fall.since[0].get("step") or 0), values_of(fall.since[:WINDOW], "kl")
    level = f"stays at {median(kls):.2g}" if kls else "is not known there"
    return Finding(
        id="validity-fell",
        severity="warning",
        summary=(
            f"{VALID} fell from {fall.was:.3g} to {fall.now:.3g} at step {step} and did not come back, while the KL to "
            f"the start {level}: harder prompts, another template, a validity check or a sampler that changed, and "
            "hardly the policy"
        ),
        evidence={"first_step": step, "before": fall.was, "since": fall.now, "se": fall.error},
        rules_out=(RuledOut(id="reward-sign", why=f"it fell at once at step {step}, and not steadily"),),
        advice="compare the prompts and samples of the steps just before and just after",
        confidence="moderate",
    )


def _finding(case: Case, fall: Fall, kl: float | None, with_it: Sequence[str]) -> Finding:
    step, moved = int(fall.since[0].get("step") or 0), sum(map(acted, fall.before))
    rates = values_of([row for row in fall.before if acted(row)], "learning_rate")
    more = [*([] if kl is None else [f"the KL jumped to {kl:.2g} {case.settings.per_factor}"]), *with_it]
    slower = tuple(f"learning_rate={rate / 2:.1g}" for rate in rates[-1:])
    return Finding(
        id="policy-collapse",
        severity="error" if kl is not None else "warning",
        summary=(
            f"{fall.metric} fell from {fall.was:.3g} to {fall.now:.3g} at step {step} and did not come back; with it "
            f"{', '.join(more)}: " + ("the policy broke there" if kl is not None else _EITHER)
        ),
        evidence={
            "metric": fall.metric, "first_step": step, "before": fall.was, "since": fall.now, "se": fall.error,
            "updates_before": moved, **({} if kl is None else {"kl": kl}),
        },
        rules_out=(RuledOut(id="reward-sign", why=f"it fell at once at step {step}, and not steadily"),),
        suggest=slower if kl is not None else (),
        advice=(
            "read samples of the steps around it"
            + (", and go back to a checkpoint before it" if kl is not None else "; log the KL (a beta above 0)")
        ),
        confidence="moderate",
        decider=Decider(question="does it break at half the learning rate too?", overrides=slower) if slower else None,
    )  # fmt: skip


_EITHER = "the policy broke there, or the prompts changed; no KL is known, which would tell"
