"""A policy that broke and stayed broken: what went first?

A limit must have been broken for good, after sound steps and to some harm (core.health.lasting). A collapse that heals
on a step without an update is no policy's (core.health.rollout_mode). Of one that does not, the column that left its
start first names the kind; they follow each other, so the order counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from core.health.case import Case
from core.health.finding import Confidence, Decider, Finding, Row
from core.health.lasting import Break, breaks, drawn, harmed
from core.health.learning_rate import counted, not_the_sampler, sampler_at_fault, too_large
from core.health.numerical import not_finite
from core.health.onset import Beyond, Onset, acted, number, onset
from core.health.rollout_mode import rollout_mode
from core.health.trend import chance_above, series, trend
from core.health.unmoved import unmoved
from core.health.unsound_start import unsound_start

AT_ONCE = 3  # updates: what breaks a policy so soon is their size
RISING = 10  # updates: what breaks so soon after the rate has risen, the rate broke

Named = tuple[str, str, tuple[str, ...], str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """One way to collapse: the column that goes first, when it is gone, what that is called, what to change."""

    name: str
    metric: str
    beyond: Beyond
    said: str
    suggest: tuple[str, ...]
    expects: str


KINDS = (
    Kind(
        name="kl-runaway", metric="kl", beyond=lambda _, now: now > 1.0,
        said="the policy ran away from the reference",
        suggest=("beta=0.05", "num_iterations=1"), expects="kl < 1",
    ),
    Kind(
        name="entropy", metric="entropy", beyond=lambda start, now: now < 0.1 * start,
        said="the policy stopped trying anything else",
        suggest=("entropy_coef=0.01",), expects="entropy > 0.01",
    ),
    Kind(
        name="length-grows", metric="completions/truncated", beyond=lambda start, now: now > max(0.5, 2 * start),
        said="completions grew into the limit",
        suggest=("overlong.weight=1", "reduction=token_mean"), expects="completions/truncated < 0.5",
    ),
    Kind(
        name="length-shrinks", metric="completions/length", beyond=lambda start, now: now < 0.3 * start,
        said="completions shrank to nothing",
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
    core.health.unsound_start. [] where the sampler is at fault, numbers are none, or no update acted in between.
    """
    if sampler_at_fault(case):
        return ()
    found = [(one, harm, moved) for one in breaks(case) if (moved := _updates_before(one)) for harm in (harmed(one),)]
    if not found:
        return unsound_start(case)
    one, harm, moved = next((each for each in found if each[1]), found[0])
    if _numbers_were_none(case, one.first):
        return ()
    moved *= case.averaged_over
    if not harm:
        return (_harmless(one, harm, moved),)
    if (sampler := unmoved(one, moved)) is not None:
        return () if rollout_mode(case) else (sampler,)
    return (_collapsed(case, one, harm, moved),)


def _updates_before(one: Break) -> int:
    """Updates that moved weights between the first sound step and the break: with none, training did not do it."""
    return sum(map(acted, one.before))


def _numbers_were_none(case: Case, first: int) -> bool:
    """Whether core.health.numerical names what went first."""
    found = not_finite(case)
    return found is not None and found.severity == "error" and int(str(found.evidence["step"])) <= first


def _evidence(one: Break, moved: int) -> dict[str, float | str]:
    return {
        "metric": one.limit.metric, "first_step": one.first, "steps": len(one.values), "share": one.share,
        "value": one.values[-1], "updates_before": moved,
    }  # fmt: skip


def _collapsed(case: Case, one: Break, harm: str, moved: int) -> Finding:
    kind, said, suggest, expects = _kind(case, one)
    sure: Confidence = "moderate" if (rate := case.once(too_large)) is None else rate.confidence
    return Finding(
        id="policy-collapse",
        severity="error",
        summary=f"{one}, after {counted(moved)}{f': {said}' if said else ''}; {harm}",
        evidence={**_evidence(one, moved), "kind": kind},
        rules_out=not_the_sampler(case),
        suggest=suggest,
        advice="a collapsed policy does not heal by itself: go back to a checkpoint before it",
        confidence=sure,
        decider=Decider(question=f"does it collapse without that ({kind})?", overrides=suggest[:1], expects=(expects,))
        if expects
        else None,
    )


def _harmless(one: Break, harm: str | None, moved: int) -> Finding:
    """`harm` is "" where nothing suffered, None where nobody knows."""
    converged = one.limit.metric == "entropy" and harm is not None
    said = "neither reward nor validity is known" if harm is None else "neither reward nor validity fell"
    return Finding(
        id="converged" if converged else "limit-broken",
        severity="info" if converged else "warning",
        summary=f"{one}, after {counted(moved)}; {said}" + (": the policy has converged" if converged else ""),
        evidence=_evidence(one, moved),
        advice="nothing more is learned from samples that are all the same" if converged else "read the last samples",
        confidence="moderate",
    )


def _kind(case: Case, one: Break) -> Named:
    """The kind, what to say of it, what to change and what to expect then."""
    if (of_the_rate := _of_the_rate(case, one)) is not None:
        return of_the_rate
    rows = drawn(case)
    found = [(left.step, index) for index, kind in enumerate(KINDS) if (left := _left(rows, kind)) is not None]
    if before := [each for each in found if each[0] <= one.first]:
        step, index = min(before)
        kind = KINDS[index]
        return kind.name, f"{kind.said} (from step {step})", _fitting(kind, case), kind.expects
    if (own := next((kind for kind in KINDS if kind.metric == one.limit.metric), None)) is not None:
        return own.name, own.said, _fitting(own, case), own.expects
    if _rewards_went_up(one):
        return "reward-hacking", "while the reward rose: it pays for what is not valid", (), ""
    return "unknown", "", (), ""


def _fitting(kind: Kind, case: Case) -> tuple[str, ...]:
    """The kind's suggestions, none of which asks for what is so already or for less of it."""
    known = case.settings
    found = [one for one in kind.suggest if not (one == "num_iterations=1" and known.updates_per_rollout == 1)]
    return tuple(f"beta={max(0.05, 4 * known.beta):.1g}" if one == "beta=0.05" and known.beta else one for one in found)


def _of_the_rate(case: Case, one: Break) -> Named | None:
    """Where its rule says so, where a few updates were enough, or where the rate had just been rising.

    Of rows that stand for several steps nobody knows how many updates were enough. What breaks with the first ones may
    be the sampler too, which an update may leave in a wrong mode: unless the gap between the two was measured.
    """
    large = case.once(too_large)
    if large is not None and large.severity == "error":
        return "learning-rate", "the learning rate broke it", large.suggest, "completions/valid > 0.5"
    if case.averaged_over > 1:
        return None
    rates = _rates(one)
    if _updates_before(one) <= AT_ONCE:
        if not any(number(row, "rollout/logprob_gap") is not None for row in one.since):
            return _RATE_OR_SAMPLER
        said = "so soon only the size of an update does that"
    elif len(rates) > 1 and rates[-1] > 1.1 * rates[-RISING:][0]:
        said = f"the learning rate was still rising, to {rates[-1]:.3g}"
    else:
        return None
    return (
        "learning-rate",
        said,
        tuple(f"learning_rate={rate / 10:.1g}" for rate in rates[-1:]),
        "completions/valid > 0.5",
    )


def _rates(one: Break) -> list[float]:
    """Those of the updates before the break."""
    return [rate for row in one.before if acted(row) and (rate := number(row, "learning_rate"))]


def _left(rows: Sequence[Row], kind: Kind) -> Onset | None:
    return onset(rows, kind.metric, kind.beyond)


def _rewards_went_up(one: Break) -> bool:
    line = trend(series([*one.before, *one.since], "reward/mean"))
    return line is not None and line.slope > 0 and chance_above(line.z) < 1e-3
