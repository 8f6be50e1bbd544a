"""A finding of one's own: the actions grew wider while the run went on."""

from __future__ import annotations

from collections.abc import Sequence

from core.health.case import Case
from core.health.finding import Finding


def wide_actions(case: Case) -> Sequence[Finding]:
    """A finding of severity info where the differential entropy ended above where it began."""
    seen = [value for row in case.rows if (value := row.get("differential_entropy")) is not None]
    if len(seen) < 2 or seen[-1] <= seen[0]:
        return ()
    text = f"the actions grew wider: their entropy went from {seen[0]:.2f} to {seen[-1]:.2f} nats"
    return (Finding(id="wide-actions", severity="info", summary=text, evidence={"first": seen[0], "last": seen[-1]}),)
