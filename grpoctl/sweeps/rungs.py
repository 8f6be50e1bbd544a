"""A ladder's rungs: has one met what it was to meet, over its seeds? Which rung is next is not here (driver)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from core.health.finding import Row
from core.health.gains import Ruler, gain_since, mean_gain, stage_gains
from core.spec import RunSpec
from core.training.outcome import check_expectations
from grpoctl.runs.status import TrialStatus
from grpoctl.sweeps.spec import SweepSpec
from grpoctl.sweeps.state import TrialRecord


def expected(sweep: SweepSpec, name: str | None, spec: RunSpec) -> Sequence[str]:
    """What the rung must meet: its own `expects`, else those of its experiment."""
    own = next((rung.expects for rung in sweep.ladder if rung.name == name), None)
    return spec.expects if own is None else own


def on_average(
    expects: Sequence[str], spec: RunSpec, runs: Sequence[tuple[Mapping[str, Any], Sequence[Row]]]
) -> tuple[Mapping[str, Any], ...]:
    """Each expectation with the mean over the runs, each given by its result and its rows.

    Not observed (`met` None) where a run does not have the metric. A gain has an interval over seeds.
    """
    finals = [dict(result.get("final") or {}) for result, _ in runs]
    common = set.intersection(*(set(final) for final in finals)) if finals else set()
    means = {name: fmean(final[name] for final in finals) for name in common}
    ruler, names = Ruler.of(spec), list(spec.stages)
    gains = [stage_gains(rows, names, ruler) for _, rows in runs]
    whole = mean_gain([gain_since(rows, names, names[0], ruler) for _, rows in runs], ruler)
    stages = {name: mean_gain([of_run[name] for of_run in gains], ruler) for name in spec.stages}
    return tuple(check_expectations(expects, means, whole, stages))


def met(trial: TrialRecord) -> bool:
    """Whether a rung met all that it was to meet."""
    return trial.status is TrialStatus.COMPLETED and bool(trial.expects) and all(one["met"] for one in trial.expects)
