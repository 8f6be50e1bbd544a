"""Is a collapse tied to the update before it, and healed without one? Then the sampler is at fault, not the weights.

Damaged weights do not heal on a step that changes nothing. So the contrast "all-invalid after an update / after a
skipped one" tells a rollout in the wrong mode from a policy that collapsed. The unit is the step: samples of a step are
not independent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import comb

from core.health.finding import Finding, Row, StepTable, all_invalid, sampled, steps_of

SIGNIFICANT = 1e-3
SEEN = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Contrast:
    """Steps that follow an update or a skipped one, and how many of each were all-invalid."""

    after_update: int
    collapsed_after_update: int
    after_skip: int
    collapsed_after_skip: int
    collapsed_and_skipped: int = 0  # all-invalid steps that skipped their update, and were followed by a step
    still_collapsed: int = 0  # ... by another all-invalid one


def contrast(table: StepTable) -> Contrast:
    """Counts over consecutive steps of the table whose second sampled something: a supervised step cannot collapse."""
    rows = steps_of(table)
    pairs: Sequence[tuple[Row, Row]] = [pair for pair in pairwise(rows) if sampled(pair[1])]
    updated = [after for before, after in pairs if before.get("update") == 1]
    skipped = [after for before, after in pairs if before.get("update") == 0]
    after_collapse = [after for before, after in pairs if before.get("update") == 0 and all_invalid(before)]
    return Contrast(
        after_update=len(updated),
        collapsed_after_update=sum(map(all_invalid, updated)),
        after_skip=len(skipped),
        collapsed_after_skip=sum(map(all_invalid, skipped)),
        collapsed_and_skipped=len(after_collapse),
        still_collapsed=sum(map(all_invalid, after_collapse)),
    )


def fisher_p(c: Contrast) -> float:
    """One-sided Fisher exact p: collapse at least this concentrated after updates if the update did not matter."""
    total, collapsed = c.after_update + c.after_skip, c.collapsed_after_update + c.collapsed_after_skip
    ways = comb(total, collapsed)
    upper = min(c.after_update, collapsed)
    tail = sum(
        comb(c.after_update, k) * comb(c.after_skip, collapsed - k) for k in range(c.collapsed_after_update, upper + 1)
    )
    return tail / ways


def rollout_mode(table: StepTable) -> Finding | None:
    """An error where all-invalid steps follow updates (p < 0.001) and were seen to heal on steps without one.

    Healing must have been seen: at least three all-invalid steps that skipped their update, at most a tenth of them
    followed by another all-invalid step. A collapse that is updated at every step proves nothing about the weights.
    """
    c = contrast(table)
    if not c.after_update or not c.after_skip:
        return None
    p = fisher_p(c)
    healed = c.collapsed_and_skipped >= SEEN and c.still_collapsed <= 0.1 * c.collapsed_and_skipped
    if p >= SIGNIFICANT or not healed:
        return None
    return Finding(
        id="rollout-mode",
        severity="error",
        summary=(
            f"{c.collapsed_after_update} of {c.after_update} steps after an update were all-invalid, "
            f"{c.collapsed_after_skip} of {c.after_skip} after a skipped one (p = {p:.0e}), and "
            f"{c.collapsed_and_skipped - c.still_collapsed} of {c.collapsed_and_skipped} healed without an update: "
            "the weights are sound and the rollout is not (sampling in train mode, a dropped KV cache)"
        ),
        evidence={
            "after_update": c.after_update,
            "collapsed_after_update": c.collapsed_after_update,
            "after_skip": c.after_skip,
            "collapsed_after_skip": c.collapsed_after_skip,
            "collapsed_and_skipped": c.collapsed_and_skipped,
            "still_collapsed": c.still_collapsed,
            "p": p,
        },
    )
