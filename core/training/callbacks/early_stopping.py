"""Stops a run that has not got better for a while on held-out prompts."""

from __future__ import annotations

from core.health.finding import StepTable
from core.spec import EarlyStoppingSpec
from core.training.callbacks.base import Callback, Ending


class EarlyStopping(Callback):
    """STOPPED_EARLY after `patience` evaluations in a row without an improvement of more than `min_delta`."""

    def __init__(self, spec: EarlyStoppingSpec) -> None:
        self._spec = spec

    def after_step(self, table: StepTable) -> Ending | None:
        """Ends the run where the last row is an evaluation and patience has run out."""
        metric, spec = self._spec.metric, self._spec
        if table[-1].get(metric) is None:
            return None
        values = [(int(row["step"] or 0), float(row[metric] or 0.0)) for row in table if row.get(metric) is not None]
        best_step, best = values[0]
        waited = 0
        for step, value in values[1:]:
            if value > best + spec.min_delta:
                best_step, best, waited = step, value, 0
            else:
                waited += 1
        if waited < spec.patience:
            return None
        return Ending(
            status="STOPPED_EARLY",
            message=f"{metric} has not improved on {best:.4f} (step {best_step}) for {waited} evaluations",
        )
