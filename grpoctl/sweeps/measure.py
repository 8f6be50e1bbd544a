"""What a run is worth to its sweep, and how much of its budget is spent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from core.config import RunSpec
from core.health.finding import StepTable
from core.health.rules.gains import Gain, Ruler, gain_metric, gain_since, stage_gains
from grpoctl.sweeps.spec import SweepSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class Yardstick:
    """How a run is measured: the metric, its part of the result, what a stopped run is worth, and a run's budget."""

    metric: str
    take: str
    worst: float
    unit: str  # what the budget counts: completions, tokens or step
    budget: float
    ruler: Ruler = field(default_factory=Ruler)  # how gains are measured
    stages: Mapping[str, str] = field(default_factory=dict)  # name -> kind

    def share(self, row: Mapping[str, Any]) -> float:
        """How much of the run's budget is spent, 0 to 1."""
        return min(1.0, float(row.get(self.unit) or 0.0) / self.budget)

    def value(self, result: Mapping[str, Any]) -> float | None:
        """What a run that ended by itself is worth; None where it does not have the metric."""
        if result.get("status") in ("COLLAPSED", "INVALID_ROLLOUT"):
            return self.worst
        return self._taken(result, self.metric)

    def error(self, result: Mapping[str, Any]) -> float | None:
        """The standard error over prompts of that value, where the run says it."""
        return None if self.value(result) is None else self._taken(result, f"{self.metric}_se")

    def gains(self, rows: StepTable) -> dict[str, Gain]:
        """What each stage of a run gained."""
        return stage_gains(rows, list(self.stages), self.ruler)

    def learned(self, rows: StepTable) -> Gain:
        """The metric's gain since GRPO began; of a run without it, since the run began.

        Nothing is known of a metric of steps or of the whole run: it has no value before the first step.
        """
        if not self.stages or self.ruler.metric != self.metric:
            return Gain(start=None, end=None)
        first = next((name for name, kind in self.stages.items() if kind == "grpo"), next(iter(self.stages)))
        return gain_since(rows, list(self.stages), first, self.ruler)

    def _taken(self, result: Mapping[str, Any], name: str) -> float | None:
        found = (result.get(self.take) or {}).get(name)
        return None if found is None else float(found)


def yardstick(sweep: SweepSpec, spec: RunSpec) -> Yardstick:
    """How the sweep measures a run of this spec."""
    budget = spec.budget
    unit, amount = "step", spec.max_steps
    if budget is not None:
        unit = "completions" if budget.completions is not None else "tokens"
        amount = budget.completions or budget.tokens or amount
    return Yardstick(
        metric=sweep.metric, take=sweep.take, worst=sweep.worst, unit=unit, budget=float(amount),
        ruler=Ruler.of(spec, gain_metric(sweep.metric)),
        stages={name: stage.kind for name, stage in spec.stages.items()},
    )  # fmt: skip
