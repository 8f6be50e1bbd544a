"""(domain, workflow) -> the distribution of its reward levels, before the cost of its operators.

A pattern that the log covers has its counts, filled up to `FULL_SIZE` observations from the domain's valid samples:
24 or more counts stand as they are, six of six is no oracle. Every other valid pattern has the domain's valid
distribution, moved to the mean that the stated rule gives (core.tasks.workflow_dsl.rule). Text that is no workflow has
the fallback's distribution. Code has no data: it starts from math and qa pooled.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from core.config.task import Domain
from core.tasks.workflow_dsl.ast import Workflow
from core.tasks.workflow_dsl.calibration import FALLBACK, PATTERNS, VALID, Counts
from core.tasks.workflow_dsl.distribution import Distribution, from_weights, moved_to, topped_up
from core.tasks.workflow_dsl.printer import render
from core.tasks.workflow_dsl.rule import rule_mean

DOMAINS: tuple[Domain, ...] = ("math", "qa", "code")
FULL_SIZE = 24


def _with_pooled_code(counts: Mapping[str, Counts]) -> dict[Domain, Distribution]:
    pooled = [sum(column) for column in zip(*counts.values(), strict=True)]
    return {domain: from_weights(counts.get(domain, pooled)) for domain in DOMAINS}


_PRIOR = _with_pooled_code(VALID)
_FALLBACK = _with_pooled_code(FALLBACK)
_COVERED: dict[Domain, dict[str, Distribution]] = {
    domain: {
        pattern: topped_up(counts, _PRIOR[domain], FULL_SIZE) for pattern, counts in PATTERNS.get(domain, {}).items()
    }
    for domain in DOMAINS
}


def fallback(domain: Domain) -> Distribution:
    """What text that is no workflow earns: the seed then ran a lone Custom."""
    return _FALLBACK[domain]


def prior(domain: Domain) -> Distribution:
    """All valid samples of the domain together."""
    return _PRIOR[domain]


def covered(domain: Domain) -> Mapping[str, Distribution]:
    """Canonical pattern -> distribution, for the patterns that the log covers."""
    return _COVERED[domain]


@lru_cache(maxsize=4096)
def outcomes(domain: Domain, workflow: Workflow) -> Distribution:
    """The distribution of a valid workflow's level. Remembered by workflow, never by text, which may be megabytes."""
    known = _COVERED[domain].get(render(workflow))
    if known is not None:
        return known
    return moved_to(_PRIOR[domain], rule_mean(domain, workflow, _FALLBACK[domain].mean))
