"""A ladder's rungs: has one met what it was to meet, over its seeds? Which rung is next is not here (driver)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from core.spec import RunSpec
from core.training.outcome import check_expectations
from grpoctl.sweeps.spec import SweepSpec
from grpoctl.sweeps.state import TrialRecord, TrialStatus


def expected(sweep: SweepSpec, name: str | None, spec: RunSpec) -> Sequence[str]:
    """What the rung must meet: its own `expects`, else those of its experiment."""
    own = next((rung.expects for rung in sweep.ladder if rung.name == name), None)
    return spec.expects if own is None else own


def on_average(expects: Sequence[str], results: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
    """Each expectation with the mean over the runs; not observed (`met` None) where a run does not have the metric."""
    finals = [dict(result.get("final") or {}) for result in results]
    common = set.intersection(*(set(final) for final in finals)) if finals else set()
    means = {name: fmean(final[name] for final in finals) for name in common}
    return tuple(check_expectations(expects, means))


def met(trial: TrialRecord) -> bool:
    """Whether a rung met all that it was to meet."""
    return trial.status is TrialStatus.COMPLETED and bool(trial.expects) and all(one["met"] for one in trial.expects)
