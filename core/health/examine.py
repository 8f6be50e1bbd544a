"""Every rule over a whole case, the most telling first."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from core.health.case import Case
from core.health.collapse import first_collapse
from core.health.finding import CONFIDENCES, SEVERITIES, Finding
from core.health.initial import initial_weights
from core.health.integrity import worst_integrity
from core.health.rollout_mode import rollout_mode
from core.health.signal import dead_groups, missing_rewards, no_updates

Rule = Callable[[Case], Sequence[Finding]]


def _one(found: Finding | None) -> Sequence[Finding]:
    return () if found is None else (found,)


def _integrity(case: Case) -> Sequence[Finding]:
    dtype = case.settings.dtype or "float32"
    return _one(worst_integrity(case.rows, dtype=dtype, override=case.guards.max_logprob_gap))


# One rule a line. Their order is the order of findings that are equally grave and equally certain.
RULES: tuple[Rule, ...] = (
    lambda case: _one(initial_weights(case.rows)),
    lambda case: _one(rollout_mode(case.rows)),
    _integrity,
    lambda case: _one(first_collapse(case.rows, case.guards)),
    lambda case: _one(no_updates(case.rows) or dead_groups(case.rows)),
    lambda case: _one(missing_rewards(case.rows)),
)


def examine(case: Case) -> list[Finding]:
    """The findings of all rules, the gravest first and of those the most certain; [] for a healthy run.

    A finding that another one, at least as certain, rules out by its id is left out.
    """
    found = [finding for rule in RULES for finding in rule(case)]
    excluded = {(ruled.id, CONFIDENCES.index(finding.confidence)) for finding in found for ruled in finding.rules_out}
    left = [
        one
        for one in found
        if not any(id_ == one.id and rank <= CONFIDENCES.index(one.confidence) for id_, rank in excluded)
    ]
    return sorted(left, key=lambda one: (SEVERITIES.index(one.severity), CONFIDENCES.index(one.confidence)))
