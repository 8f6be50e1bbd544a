"""A policy that broke and stayed broken: what went first, or was it never sound, or is it not the policy at all?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from core.health.case import Case
from core.health.finding import Confidence, Decider, Finding, RuledOut
from core.health.guard import Limit, limits
from core.health.rules.breaks import MOST, Break, breaks, drawn, harmed
from core.health.rules.end_token import missing_eos
from core.health.rules.first_updates import NEAR
from core.health.rules.learning_rate import counted, not_the_sampler, sampler_at_fault, too_large
from core.health.rules.numerical import not_finite
from core.health.rules.reward_parts import component_conflict
from core.health.rules.rollout_mode import rollout_mode
from core.health.statistics import chance_above, series, trend
from core.health.steps import Beyond, acted, number, onset, values_of

FIRST = 5  # steps of the collapse whose KL counts
SHARES = ("completions/valid", "completions/truncated")  # limits on the chance of an event


def unmoved(break_: Break, updates: int, per_factor: str) -> Finding | None:
    """The error of a sampler that is not the policy; None where no KL says so, or the KL allows the collapse.

    Completions went bad while the weights had hardly moved. A policy that is d nats a token away from its start gives
    no event a chance that differs by more than sqrt(d x length / 2) from what it was (Pinsker); no bound is known
    where no length is. Not here: collapses that follow updates and heal without them (core.health.rules.rollout_mode).
    """
    metric = break_.limit.metric
    first = break_.since[:FIRST]
    kls, lengths = values_of(first, "kl"), values_of(first, "completions/length")
    before, since = values_of(break_.before, metric), values_of(first, metric)
    if metric not in SHARES or not kls or not before or not lengths or max(kls) >= NEAR:
        return None
    change = abs(fmean(since) - fmean(before))
    allowed = math.sqrt(max(kls) * max(lengths) / 2)
    if change <= allowed:
        return None
    return Finding(
        id="rollout-mode",
        severity="error",
        summary=(
            f"{break_}, after {counted(updates)}, while the policy is at most {max(kls):.2g} "
            f"{per_factor} away from its start: {metric} changed by {change:.2g}, and so small a KL allows "
            f"{allowed:.2g}; completions are not drawn from that policy, or the prompts changed there"
        ),
        evidence={"metric": metric, "first_step": break_.first, "kl": max(kls), "change": change, "allowed": allowed},
        rules_out=tuple(
            RuledOut(id=cause, why=f"a KL of {max(kls):.2g} {per_factor}: the weights hardly moved")
            for cause in ("policy-collapse", "learning-rate", "damaged-weights")
        ),
        suggest=("guards.rollout_integrity=stop",),
        advice="compare the log-probs recorded while sampling with a clean forward; sample in eval mode, cache on",
        confidence="moderate",
        decider=Decider(
            question="is there a gap between sampler and trainer?", overrides=("guards.rollout_integrity=stop",)
        ),
    )


NOTHING = 0.2  # of the limit: less is next to nothing
SOUND = 0.5  # of the completions are valid: then what else is odd is by design, or harmless


def unsound_start(case: Case) -> Sequence[Finding]:
    """An error where next to nothing was valid from the first step to the end; a warning for the other limits.

    A warning too where a few completions are valid all the time, as on a task that is too hard: a limit between them
    and the next count of a step is passed by chance.

    What was broken from the first step that drew completions on, training did not break. Silent where it healed: then
    it was learned. And where core.health.rules.end_token says the same of the end token.

    ## unsound-start

    Severity: error (strong by validity, moderate by truncation); warning (moderate) for other limits, and where a few
    completions are valid all the time (a fifth of the limit or more, 1 %).

    Means: a limit was broken from the first step that drew completions, so training did not do it.

    Looks at: a guard's limit that is broken on four fifths of all steps and of the last third. Of an excerpt nobody
    knows what came before, and the sentence says so.

    Confounder: a task that is too hard looks the same where a few completions are valid all the time. Silent where more
    than half is valid, where it heals (then it was learned), and where `missing-eos` explains it. Sound first and
    broken without an update in between is the sampler's (`rollout-mode`).

    Do: look at what the model is asked and where its completions end: the prompt's format, the end token,
    `max_completion_length`, the validity check itself.
    """
    bad = [(limit, values) for limit in limits(case.guards) if (values := _never_sound(case, limit))]
    valid = values_of(case.once(drawn), "completions/valid")
    if not bad or (valid and fmean(valid) >= SOUND) or missing_eos(case):
        return ()
    limit, values = bad[0]
    some = limit.metric == "completions/valid" and fmean(valid) >= NOTHING * limit.value
    useless = bool(valid) and limit.metric in ("completions/valid", "completions/truncated") and not some
    share, first = fmean(map(limit.broken, values)), int(case.once(drawn)[0].get("step") or 0)
    sure: Confidence = "strong" if limit.metric == "completions/valid" and not some else "moderate"
    trained = _BEFORE if case.begins_later else ": training did not do it"
    otherwise = f", or the task is too hard ({fmean(valid):.1%} are valid)" if some else ", and it may be meant"
    return (
        Finding(
            id="unsound-start",
            severity="error" if useless else "warning",
            summary=(
                f"{limit.metric} is {limit} on {share:.0%} of the steps, from step {first} on, the first that drew "
                f"completions{trained}{'' if useless else otherwise}"
            ),
            evidence={
                "metric": limit.metric, "first_step": first, "value": values[0], "last": values[-1], "share": share,
            },
            advice=(
                "see what the model is asked and where its completions end: the prompt's format, the end token, "
                "max_completion_length, the validity check itself"
                if case.settings.factor in (None, "token")
                else "see what the policy is given, and the validity check itself"
            ),
            confidence=sure,
        ),
    )  # fmt: skip


_BEFORE = " in this log, which does not begin with the run: what came before is not known"


def _never_sound(case: Case, limit: Limit) -> list[float]:
    """The column where it is beyond the limit from the first step on, for most of all steps and of the last third."""
    values = values_of(case.once(drawn), limit.metric)
    broken = list(map(limit.broken, values))
    patience = case.guards.patience
    if len(values) < patience or not all(broken[:patience]):
        return []
    return values if min(fmean(broken), fmean(broken[-max(patience, len(broken) // 3) :])) >= MOST else []


AT_ONCE = 3  # updates: what breaks a policy so soon is their size
RISING = 10  # updates: what breaks so soon after the rate has risen, the rate broke

Named = tuple[str, str, tuple[str, ...], str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """One way to collapse: the column that goes first, when it is gone, what that is called, what to change."""

    name: str
    metric: str
    below: bool  # whether it goes down: of a limit in the other direction it says nothing
    beyond: Beyond
    statement: str
    suggest: tuple[str, ...]
    expects: str


KINDS = (
    Kind(
        name="kl-runaway", metric="kl", below=False, beyond=lambda _, now: now > 1.0,
        statement="the policy ran away from the reference",
        suggest=("beta=0.05", "num_iterations=1"), expects="kl < 1",
    ),
    Kind(
        name="entropy", metric="entropy", below=True, beyond=lambda start, now: now < 0.1 * start,
        statement="the policy stopped trying anything else",
        suggest=("entropy_coef=0.01",), expects="entropy > 0.01",
    ),
    Kind(
        name="length-grows", metric="completions/truncated", below=False,
        beyond=lambda start, now: now > max(0.5, 2 * start),
        statement="completions grew into the limit",
        suggest=("overlong.weight=1", "reduction=token_mean"), expects="completions/truncated < 0.5",
    ),
    Kind(
        name="length-shrinks", metric="completions/length", below=True, beyond=lambda start, now: now < 0.3 * start,
        statement="completions shrank to nothing",
        suggest=("reduction=token_mean",), expects="completions/length > 2",
    ),
)  # fmt: skip


_RATE_OR_SAMPLER: Named = (
    "rate-or-sampler",
    "so soon the size of an update does that, or a sampler that an update leaves in a wrong mode; this log cannot tell",
    ("guards.rollout_integrity=stop",),
    "completions/valid > 0.5",
)


def policy_collapse(case: Case) -> Sequence[Finding]:
    """An error where a guard's limit was broken for good after sound steps, and harm came of it, with the kind.

    Without harm: an info `converged` for the entropy, else a warning `limit-broken`. Where no step was ever sound:
    `unsound_start`. [] where the sampler is at fault, numbers are none, or no update acted in between.

    A limit must have been broken for good, after sound steps and to some harm (core.health.rules.breaks). A collapse
    that heals on a step without an update is no policy's (core.health.rules.rollout_mode). Of one that does not, the
    column that left its start first names the kind; they follow each other, so the order counts.

    ## converged

    Severity: info (moderate).

    Means: the entropy broke its limit for good without harm: a policy that is sure of the best answer has none.

    Looks at: the same as `policy-collapse`, without harm.

    Confounder: neither reward nor validity known: then it is `limit-broken`.

    Do: nothing; nothing more is learned from samples that are all the same.

    ## limit-broken

    Severity: warning (moderate).

    Means: a guard's limit was broken for good, after sound steps, and no harm is seen, or neither reward nor validity
    is known.

    Looks at: the same as `policy-collapse`, without harm, for any limit but the entropy's.

    Confounder: completions that became longer or shorter because that is better. Silent where one part of the reward
    fell while another rose: `component-conflict` says what that did.

    Do: read the last samples.
    """
    if sampler_at_fault(case):
        return ()
    collapses = [
        (break_, harm, moved)
        for break_ in case.once(breaks)
        if (moved := _updates_before(break_))
        for harm in (harmed(break_),)
    ]
    if not collapses:
        return unsound_start(case)
    break_, harm, moved = next((each for each in collapses if each[1]), collapses[0])
    if _numbers_were_none(case, break_.first):
        return ()
    moved *= case.averaged_over
    if not harm:
        return () if case.once(component_conflict) else (_harmless(break_, harm, moved),)
    if (sampler := unmoved(break_, moved, case.settings.per_factor)) is not None:
        return () if rollout_mode(case) else (sampler,)
    return (_collapsed(case, break_, harm, moved),)


def _updates_before(break_: Break) -> int:
    """Updates that moved weights between the first sound step and the break: with none, training did not do it."""
    return sum(map(acted, break_.before))


def _numbers_were_none(case: Case, first: int) -> bool:
    """Whether core.health.rules.numerical names what went first."""
    finding = not_finite(case)
    return finding is not None and finding.severity == "error" and int(str(finding.evidence["step"])) <= first


def _evidence(break_: Break, moved: int) -> dict[str, float | str]:
    return {
        "metric": break_.limit.metric, "first_step": break_.first, "steps": len(break_.values), "share": break_.share,
        "value": break_.values[-1], "updates_before": moved,
    }  # fmt: skip


def _collapsed(case: Case, break_: Break, harm: str, moved: int) -> Finding:
    """The finding of a policy that broke and stayed broken, with the kind that its columns tell.

    ## policy-collapse

    Severity: error (strong or moderate); warning (moderate) for a break that no limit names, without a KL, and
    (moderate or weak) where only a few rows far apart show it, and (weak) where a training reward falls all along. Of
    logs of others warning also where evaluations end at half of their best level (strong, moderate with fewer than
    twelve), or without any the rewards (moderate), and (strong) where the entropy is that of a policy that draws any
    token.

    Means: the policy broke after sound steps and stayed broken, and validity or the reward suffered.

    Looks at: a guard's limit that was broken for good. Inside one stage (another stage has other prompts and other
    rewards) three things are asked:

    - It was better before. Four fifths of the steps before were within the limit (of the first five three are enough,
      but then no later step may be as good as they were), and an update acted among them.
    - It lasts. Four fifths of the steps that follow, to the end of the table, do not come back half way to the median
      before. A run that its guard stopped has nothing after it, and counts as lasting.
    - Harm. Valid completions fell to less than half, or the reward fell: below its best ten steps (or its first), by 4
      standard errors over steps and a tenth of its range in the run.

    What left its start first (three steps in a row, and four fifths of all that follow) names the `kind`, since one
    follows from the other; where nothing left before the limit broke, the limit's own column names it. Only the order
    is known, so the kind is moderate:

    - `learning-rate`: the finding of that name, where it is an error; or three updates were enough and the log-prob gap
      was measured; or the rate had risen by a tenth or more in the ten updates before (a short warm-up). Suggested: its
      rate, else a tenth of the rate there.
    - `rate-or-sampler`: three updates were enough, and no log-prob gap is in the log: an update can leave a sampler in
      a wrong mode as well. Suggested: `guards.rollout_integrity=stop`.
    - `kl-runaway`: KL above 1 nat a token. Suggested: `beta` (0.05, or four times what it is), fewer updates a rollout.
    - `entropy`: entropy under a tenth of its start. Suggested: `entropy_coef`.
    - `length-grows`: more than half truncated, and twice the start's. Suggested: `overlong.weight`,
      `reduction=token_mean`.
    - `length-shrinks`: length under 0.3 of the start. Suggested: `reduction=token_mean`.
    - `reward-hacking`: none of these, and `reward/mean` rose (p < 0.001). `unknown`: none at all.

    A break that no limit names. A guard's limit is a cliff: 97 % cut off is beyond it and 90 % is not. So validity and
    the reward are also held against themselves: the place where two levels fit best, at least five steps on either
    side; the level before is that of ten steps; the fall is at least half of the range of the stage's rewards (of
    validity: to less than half) and four standard errors, and nine tenths of the steps of either side are nearer to
    their own level. Error (moderate) where the KL jumped with it: its median over the next ten steps is above 0.1 nats
    a token and five times that of the ten before. A warning where no KL is known and something else changed there
    (entropy outside 0.1 to 3 times, length outside 0.3 to 3 times, cut-off completions up by 0.4).

    Logs of others, where none of this speaks: six evaluations or more, else twelve rewards, none negative, of which the
    last sixth (two at least) is at half of the best sixth's mean or less, no row above two thirds of it, and four
    standard errors below it, by what neighbours differ. And an
    entropy that began with 2 nats a token at most and is 5 or more on the last third of six rows or more.

    Few rows that lie far apart (three to twenty): a reward that fell to a quarter or less of the level before and
    stayed is a warning, moderate where the KL, gradients, entropy, length or cut-off completions left their level with
    it, weak where nothing else is known to have changed and rows are of five steps or more, or three of them have a
    fiftieth left. Where a known KL stayed below 0.05 it is the sampler's (`sampler-mismatch`). A fall to half counts
    (moderate) with two rows on either side where two of these left their level: entropy, length or gradients by a
    factor of two, a KL to ten times and 0.05, cut-off completions up by a tenth. So does (weak) a validity of a fifth
    or more that fell to half, by three standard errors, over rows five steps apart, whatever the reward did. And in a
    log without evaluations a training reward that falls all along: on a line by four standard errors, and by a quarter
    of its first third, of a step's own deviation and of 0.1; by 1.5 standard errors where half of it is lost and length
    or entropy went to a third or three times, the KL or gradients to ten times, or 40 % more are cut off (warning,
    weak), unless `reward-sign` speaks. Prompts or a reward that become harder look the same there, and the sentence
    names both.

    Confounder: a faulty sampler, whose collapse heals on steps without an update (`rollout-mode`); prompts that change,
    which look like a break where no KL is known (a smooth growth of the KL is no jump); a few hopeless prompts, which
    break a limit by chance. For a break that no limit names: silent where a reward fell and a known KL did not jump,
    where evaluations since are no worse than the last before, and where another rule explains what broke.

    Do: go back to a checkpoint before it (a collapsed policy does not heal by itself), with the change that its kind
    suggests.

    Measured: learning rate x100 in p31: found in 10 of 10. False alarms: none in 300 runs of 60 steps each whose one or
    two prompts a step are never valid with probability 0.2, 0.3 or 0.5, and in which nothing is learned. With one
    prompt a step a guard may stop such a run by chance, and its table then looks like a collapse: of 1,000 runs at 0.5
    a guard stopped 624, and 67 of these are called one. A validity that is a steady 2 to 8 % is called a collapse in 0
    to 2 % of 400 runs. Breaks that no limit names: [benchmarks](benchmarks.md#breaks-that-no-limit-names).
    """
    kind, statement, suggest, expects = _kind(case, break_)
    sure: Confidence = "moderate" if (rate := case.once(too_large)) is None else rate.confidence
    return Finding(
        id="policy-collapse",
        severity="error",
        summary=f"{break_}, after {counted(moved)}{f': {statement}' if statement else ''}; {harm}",
        evidence={**_evidence(break_, moved), "kind": kind},
        rules_out=not_the_sampler(case),
        suggest=suggest,
        advice="a collapsed policy does not heal by itself: go back to a checkpoint before it",
        confidence=sure,
        decider=Decider(question=f"does it collapse without that ({kind})?", overrides=suggest[:1], expects=(expects,))
        if expects
        else None,
    )


def _harmless(break_: Break, harm: str | None, moved: int) -> Finding:
    """`harm` is "" where nothing suffered, None where nobody knows."""
    converged = break_.limit.metric == "entropy" and harm is not None
    text = "neither reward nor validity is known" if harm is None else "neither reward nor validity fell"
    return Finding(
        id="converged" if converged else "limit-broken",
        severity="info" if converged else "warning",
        summary=f"{break_}, after {counted(moved)}; {text}" + (": the policy has converged" if converged else ""),
        evidence=_evidence(break_, moved),
        advice="nothing more is learned from samples that are all the same" if converged else "read the last samples",
        confidence="moderate",
    )


def _kind(case: Case, break_: Break) -> Named:
    """The kind, what to say of it, what to change and what to expect then."""
    if (of_the_rate := _of_the_rate(case, break_)) is not None:
        return of_the_rate
    rows = case.once(drawn)
    onsets = [(left.step, index) for index, kind in enumerate(KINDS) if (left := onset(rows, kind.metric, kind.beyond))]
    if before := [each for each in onsets if each[0] <= break_.first]:
        step, index = min(before)
        kind = KINDS[index]
        return kind.name, f"{kind.statement} (from step {step})", _fitting(kind, case), kind.expects
    of_the_limit = (kind for kind in KINDS if (kind.metric, kind.below) == (break_.limit.metric, break_.limit.below))
    if (own := next(of_the_limit, None)) is not None:
        return own.name, own.statement, _fitting(own, case), own.expects
    if _rewards_went_up(break_):
        return "reward-hacking", "while the reward rose: it pays for what is not valid", (), ""
    return "unknown", "", (), ""


def _fitting(kind: Kind, case: Case) -> tuple[str, ...]:
    """The kind's suggestions, none of which asks for what is so already or for less of it."""
    known = case.settings
    overrides = [
        override for override in kind.suggest if not (override == "num_iterations=1" and known.updates_per_rollout == 1)
    ]
    return tuple(
        f"beta={max(0.05, 4 * known.beta):.1g}" if override == "beta=0.05" and known.beta else override
        for override in overrides
    )


def _of_the_rate(case: Case, break_: Break) -> Named | None:
    """Where its rule says so, where a few updates were enough, or where the rate had just been rising.

    Of rows that stand for several steps nobody knows how many updates were enough. What breaks with the first ones may
    be the sampler too, which an update may leave in a wrong mode: unless the gap between the two was measured.
    """
    large = case.once(too_large)
    if large is not None and large.severity == "error":
        return "learning-rate", "the learning rate broke it", large.suggest, "completions/valid > 0.5"
    if case.averaged_over > 1:
        return None
    rates = [rate for row in break_.before if acted(row) and (rate := number(row, "learning_rate"))]
    if _updates_before(break_) <= AT_ONCE:
        if not any(number(row, "rollout/logprob_gap") is not None for row in break_.since):
            return _RATE_OR_SAMPLER
        text = "so soon only the size of an update does that"
    elif len(rates) > 1 and rates[-1] > 1.1 * rates[-RISING:][0]:
        text = f"the learning rate was still rising, to {rates[-1]:.3g}"
    else:
        return None
    return (
        "learning-rate",
        text,
        tuple(f"learning_rate={rate / 10:.1g}" for rate in rates[-1:]),
        "completions/valid > 0.5",
    )


def _rewards_went_up(break_: Break) -> bool:
    line = trend(series([*break_.before, *break_.since], "reward/mean"))
    return line is not None and line.slope > 0 and chance_above(line.z) < 1e-3
