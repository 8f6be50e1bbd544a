"""What a run is worth to its sweep, and how much of its budget is spent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from core.spec import RunSpec
from grpoctl.sweeps.spec import SweepSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class Yardstick:
    """How a run is measured: the metric, its part of the result, what a stopped run is worth, and a run's budget."""

    metric: str
    take: str
    worst: float
    unit: str  # what the budget counts: completions, tokens or step
    budget: float

    def share(self, row: Mapping[str, Any]) -> float:
        """How much of the run's budget is spent, 0 to 1."""
        return min(1.0, float(row.get(self.unit) or 0.0) / self.budget)

    def value(self, result: Mapping[str, Any]) -> float | None:
        """What a run that ended by itself is worth; None where it does not have the metric."""
        if result.get("status") in ("COLLAPSED", "INVALID_ROLLOUT"):
            return self.worst
        found = (result.get(self.take) or {}).get(self.metric)
        return None if found is None else float(found)


def yardstick(sweep: SweepSpec, spec: RunSpec) -> Yardstick:
    """How the sweep measures a run of this spec."""
    budget = spec.budget
    unit, amount = "step", spec.max_steps
    if budget is not None:
        unit = "completions" if budget.completions is not None else "tokens"
        amount = budget.completions or budget.tokens or amount
    return Yardstick(metric=sweep.metric, take=sweep.take, worst=sweep.worst, unit=unit, budget=float(amount))
