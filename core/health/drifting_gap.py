"""A gap between sampler and trainer that is within rounding's limit and grows all the same: are old weights drawn from?

The limit of a coarse dtype is wide, and a sampler that is never given new weights needs many updates to get there.
Sound ones stay where they are. Not here: gaps beyond the limit (core.health.gap_pattern).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from core.health.case import Case
from core.health.finding import Decider, Finding
from core.health.gap_pattern import SIGNIFICANT, Seen, gaps, growth
from core.health.trend import shown_p

ENOUGH = 12  # gaps after an update
GROWN = 3.0  # times, from the first third to the last: a line from 0 has five times
NEAR = 0.1  # of the limit, in the end: below it rounding is all there can be


def drifting_gap(case: Case) -> Sequence[Finding]:
    """A warning where the gap grew three times with the updates (p < 0.001), and not with the entropy alone."""
    later = [one for one in gaps(case) if one.updates]
    if len(later) < ENOUGH or any(one.broken for one in later):
        return ()
    third = len(later) // 3
    first, last = (median(one.gap for one in part) for part in (later[:third], later[-third:]))
    limit = median(one.limit for one in later)
    if last < GROWN * first or last < NEAR * limit:
        return ()
    rho, p = max((growth(seen) for seen in (later, _without_entropy(later))), key=lambda one: one[1])
    if p >= SIGNIFICANT:
        return ()
    return (
        Finding(
            id="stale-sampler",
            severity="warning",
            summary=(
                f"the gap between sampler and trainer grows with the updates, from {first:.2g} to {last:.2g} nats a "
                f"token (rank correlation {rho:.2f}, {shown_p(p)}), each within what rounding explains ({limit:.2g}): "
                "the sampler may draw from old weights, or rounding grows as the policy moves"
            ),
            evidence={"first_third": first, "last_third": last, "limit": limit, "rank_correlation": rho, "p": p},
            advice="hand the sampler the trainer's weights after every update, and check that they arrived",
            confidence="moderate",
            decider=Decider(
                question="does the gap stay where it is while no update moves anything?",
                overrides=("learning_rate=1e-12",),
            ),
        ),
    )


def _without_entropy(seen: Sequence[Seen]) -> list[Seen]:
    """The same gaps as they are, not in units of the entropy: that of a policy that gets surer grows by itself."""
    return [replace(one, entropy=0.0) for one in seen]
