"""A KL to the start of exactly 0 on every row: the updates reach other weights, or the policy is its own reference.

A rate that is too small for any KL to show is `learning-rate`'s (core.health.rules.learning_rate), and a gradient of 0
is `no-gradient`'s.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median

from core.health.case import Case
from core.health.finding import Decider, Finding, RuledOut
from core.health.steps import acted, ends_of, values_of

ENOUGH, SOME, ROWS = 20, 10, 5  # updates, and rows
FEW = 5  # rows: the first and the last fifth of fewer than ten are one row each
FELT, CLEAR = 0.1, 4.0  # of a level, and standard errors: what an entropy or a length moves by where a policy does
MOVES = 1e-4  # a rate at which Adam changes a weight of any usual size, in bf16 too


def zero_kl(case: Case) -> Sequence[Finding]:
    """A warning where the KL to the start is exactly 0 after many updates that a gradient and a rate stand behind.

    Where reward, entropy or length say that the policy moved, what it is compared with did too (`reference-mismatch`).
    Where they stay, the two look the same here, and both are said (`no-updates`). An info where `beta` is not known: a
    trainer may write 0 for a KL that it does not compute. Silent at a rate below 1e-4, which explains a policy that
    does not move, unless the reward rose.
    """
    rows = case.stage_rows
    kls, gradients = values_of(rows, "kl"), [norm for norm in values_of(rows, "grad_norm") if norm > 0]
    rate = max(values_of(rows, "learning_rate") or [case.settings.learning_rate or 0.0])
    moved = sum(map(acted, rows)) * case.averaged_over
    if len(kls) < ROWS or any(kls) or moved < SOME or 2 * len(gradients) < len(kls) or case.settings.beta == 0:
        return ()
    seen = courses(case)
    changed = [course for course in seen if course.changed]
    rose = any(course.metric == "reward/mean" and course.after > course.before for course in changed)
    if changed:
        return (_own_reference(case, len(kls), changed, rose=rose),) if rose or rate >= MOVES else ()
    if rate < MOVES or not seen:
        return ()
    return (_other_weights(case, len(kls), (rate, median(gradients)), seen, sure=moved >= ENOUGH),)


_OF_THE_POLICY = ("reward/mean", "entropy", "completions/length")


@dataclass(frozen=True, kw_only=True, slots=True)
class Course:
    """A column at both ends of the log, and the standard error of their difference."""

    metric: str
    before: float
    after: float
    error: float

    @property
    def changed(self) -> bool:
        return abs(self.after - self.before) > max(FELT * abs(self.before), CLEAR * self.error)

    def __str__(self) -> str:
        return f"{self.metric} went from {self.before:.3g} to {self.after:.3g}"


def courses(case: Case) -> list[Course]:
    """What is known of the policy's columns: reward, entropy and length at both ends."""
    ends = {metric: _ends(case, metric) for metric in _OF_THE_POLICY}
    return [
        Course(metric=metric, before=of[0], after=of[1], error=of[2]) for metric, of in ends.items() if of is not None
    ]


def _ends(case: Case, metric: str) -> tuple[float, float, float] | None:
    """(mean of the first fifth, of the last, standard error of their difference); None for too few rows.

    The error is by what neighbours differ by, which a drift does not widen.
    """
    early, late = ends_of(case.stage_rows, metric, least=FEW if case.averaged_over > 1 else 2 * FEW)
    if not early:
        return None
    noise = math.sqrt(fmean((b - a) ** 2 for a, b in pairwise(values_of(case.stage_rows, metric))) / 2)
    return fmean(early), fmean(late), noise * math.sqrt(1 / len(early) + 1 / len(late))


def _own_reference(case: Case, rows: int, changed: Sequence[Course], *, rose: bool) -> Finding:
    """The policy moved, or its prompts changed, and the KL did not."""
    beta = case.settings.beta
    else_ = [] if beta else ["no KL is computed"]
    else_ += [] if rose else ["the prompts changed and the policy did not"]
    return Finding(
        id="reference-mismatch",
        severity="warning" if beta and rose else "info",
        summary=(
            f"the KL is exactly 0 on all {rows} rows while {', '.join(map(str, changed))}: the policy is compared with "
            "itself (one set of weights for both, or a reference that is copied each time)"
            + (f", so beta {beta:g} holds nothing" if beta else "")
            + "".join(f", or {other}" for other in else_)
        ),
        evidence={"kl_max": 0.0, "rows": rows, "changed": [course.metric for course in changed]},
        advice="keep the reference's weights apart from the policy's; after an update their log-probs differ",
        confidence="moderate" if beta and rose else "weak",
        decider=Decider(question="do log-probs of policy and reference differ after one update?", expects=("kl > 0",)),
    )


def _other_weights(case: Case, rows: int, step: tuple[float, float], seen: Sequence[Course], *, sure: bool) -> Finding:
    """Gradients and a rate that moves weights, and nothing of the policy knows of it."""
    rate, gradient = step
    known = bool(case.settings.beta)
    return Finding(
        id="no-updates",
        severity="warning" if known else "info",
        summary=(
            f"the KL to the start is exactly 0 on all {rows} rows, at a learning rate of {rate:.3g} and gradients of "
            f"{gradient:.2g}, and {', '.join(course.metric for course in seen)} did not move either: the optimiser has "
            "other weights than the policy that is run (made before a copy, a wrap or an adapter), or the policy is "
            "its own reference" + ("" if known else ", or no KL is computed")
        ),
        evidence={"kl_max": 0.0, "rows": rows, "learning_rate": rate, "grad_norm": gradient},
        rules_out=(RuledOut(id="learning-rate", why=f"a rate of {rate:.3g} moves weights, in bf16 too"),),
        advice="look at one weight of the policy before and after a step, and at the weights that the optimiser holds",
        confidence="weak" if not known else "strong" if sure and len(seen) > 1 else "moderate",
        decider=Decider(question="does a weight of the policy change with a step?"),
    )
