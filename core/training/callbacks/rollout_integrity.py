"""Stops a run whose sampler does not draw from the policy that is trained, before it is trained on such samples."""

from __future__ import annotations

from core.config import GuardSpec
from core.config.guards import stops
from core.health.finding import Finding, Row, StepTable
from core.health.rules.integrity import evaluation_integrity, rollout_integrity
from core.training.callbacks.base import Callback, Ending


class RolloutIntegrity(Callback):
    """INVALID_ROLLOUT at the first step whose log-prob gap rounding does not explain."""

    def __init__(self, guards: GuardSpec, dtype: str) -> None:
        self._guards = guards
        self._dtype = dtype

    def before_update(self, row: Row) -> Ending | None:
        """Ends the run where the rule finds something and the guard says stop."""
        return self._ending(rollout_integrity(row, dtype=self._dtype, override=self._guards.max_logprob_gap))

    def after_step(self, table: StepTable) -> Ending | None:
        """The same for the step's evaluation."""
        return self._ending(evaluation_integrity(table[-1], dtype=self._dtype, override=self._guards.max_logprob_gap))

    def _ending(self, finding: Finding | None) -> Ending | None:
        if finding is None or not stops(self._guards.rollout_integrity):
            return None
        return Ending(status="INVALID_ROLLOUT", message=finding.summary, finding=finding)
