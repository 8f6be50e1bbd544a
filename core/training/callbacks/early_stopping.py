"""Stops a run that has not got better for a while on held-out prompts."""

from __future__ import annotations

from core.config import EarlyStoppingSpec
from core.health.finding import StepTable
from core.training.callbacks.base import Callback, Ending
from core.training.patience import wait


class EarlyStopping(Callback):
    """STOPPED_EARLY after `patience` evaluations in a row without an improvement of more than `min_delta`."""

    def __init__(self, spec: EarlyStoppingSpec) -> None:
        self._spec = spec

    def after_step(self, table: StepTable) -> Ending | None:
        """Ends the run where the last row is an evaluation and patience has run out."""
        found = wait(table, self._spec)
        if found is None or found.waited < self._spec.patience:
            return None
        return Ending(
            status="STOPPED_EARLY",
            message=f"{self._spec.metric} has not improved on {found.best:.4f} (step {found.best_step}) "
            f"for {found.waited} evaluations",
        )
