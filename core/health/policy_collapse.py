"""A policy that broke and stayed broken: what went first?

A collapse that heals on a step without an update is no policy's (core.health.rollout_mode, which is left to say so). Of
one that does not, the column that left its start first names the kind; they follow each other, so the order counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from core.health.case import Case
from core.health.collapse import first_collapse
from core.health.finding import Confidence, Decider, Finding, Row, steps_of
from core.health.learning_rate import not_the_sampler, sampler_at_fault, too_large
from core.health.onset import Beyond, Onset, acted, onset
from core.health.trend import chance_above, series, trend


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


def policy_collapse(case: Case) -> Sequence[Finding]:
    """An error where a guard's limit was broken for its patience, with the kind; [] where the sampler is at fault."""
    found = first_collapse(case.rows, case.guards)
    if found is None or found.id != "policy-collapse" or sampler_at_fault(case):
        return ()
    first = int(found.evidence["first_step"])  # type: ignore[arg-type]
    if (moved := _updates_before(case, first)) == 0:
        return (_never_sound(found, first),)
    kind, said, suggest, expects = _kind(case, first)
    sure: Confidence = "moderate" if (rate := too_large(case)) is None else rate.confidence
    evidence = {**found.evidence, "kind": kind, "updates_before": moved}
    return (
        Finding(
            id="policy-collapse",
            severity="error",
            summary=f"{found.summary}, after {moved} updates{f': {said}' if said else ''}",
            evidence=evidence,
            rules_out=not_the_sampler(case),
            suggest=suggest,
            advice="a collapsed policy does not heal by itself: go back to a checkpoint before it",
            confidence=sure,
            decider=Decider(
                question=f"does it collapse without that ({kind})?", overrides=suggest[:1], expects=(expects,)
            )
            if expects
            else None,
        ),
    )


def _updates_before(case: Case, step: int) -> int:
    return sum(acted(row) for row in steps_of(case.rows) if (row["step"] or 0) < step)


def _never_sound(found: Finding, first: int) -> Finding:
    return Finding(
        id="unsound-start",
        severity="error",
        summary=f"{found.summary}: from step {first} on, before any update acted, so training did not do it",
        evidence={**found.evidence, "updates_before": 0},
        advice=(
            "see what the model is asked and where its completions end: the prompt's format, the end token, "
            "max_completion_length, the validity check itself"
        ),
        confidence="strong",
    )


def _kind(case: Case, first: int) -> tuple[str, str, tuple[str, ...], str]:
    """The kind, what to say of it, what to change and what to expect then."""
    if (rate := too_large(case)) is not None:
        return "learning-rate", "the learning rate broke it", rate.suggest, "completions/valid > 0.5"
    found = [(left.step, index) for index, kind in enumerate(KINDS) if (left := _left(case, kind)) is not None]
    before = [one for one in found if one[0] <= first]
    if before:
        step, index = min(before)
        kind = KINDS[index]
        return kind.name, f"{kind.said} (from step {step})", kind.suggest, kind.expects
    if _rewards_went_up(case.rows):
        return "reward-hacking", "while the reward rose: it pays for what is not valid", (), ""
    return "unknown", "", (), ""


def _left(case: Case, kind: Kind) -> Onset | None:
    return onset(case.rows, kind.metric, kind.beyond)


def _rewards_went_up(rows: Sequence[Row]) -> bool:
    line = trend(series(steps_of(rows), "reward/mean"))
    return line is not None and line.slope > 0 and chance_above(line.z) < 1e-3
