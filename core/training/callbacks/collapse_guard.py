"""Stops a run whose policy has collapsed: nothing valid, no entropy, nothing but truncation, far KL, or NaN."""

from __future__ import annotations

from core.config import GuardSpec
from core.config.guards import stops
from core.health.finding import StepTable
from core.health.rules.breaks import policy_collapse
from core.training.callbacks.base import Callback, Ending


class CollapseGuard(Callback):
    """COLLAPSED when the rule finds something and the guard says stop."""

    def __init__(self, guards: GuardSpec) -> None:
        self._guards = guards

    def after_step(self, table: StepTable) -> Ending | None:
        """Ends the run where the last steps say so."""
        if not stops(self._guards.collapse) or (finding := policy_collapse(table, self._guards)) is None:
            return None
        return Ending(status="COLLAPSED", message=finding.summary, finding=finding)
