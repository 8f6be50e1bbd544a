"""What a sweep will cost: trials, runs, completions, and hours by what such runs took here before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from core.config import RunSpec
from core.errors import StorageError
from grpoctl.files import read_json
from grpoctl.runs.run_dir import Home
from grpoctl.runs.study_dir import studies
from grpoctl.sweeps.spec import SweepSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """`each` is what one run may spend in `unit`; `pace` is seconds per unit, None where nothing was measured."""

    sweep: str
    profile: str
    trials: int
    seeds: int
    slots: int
    unit: str
    each: int
    pace: float | None
    measured_on: str

    @property
    def runs(self) -> int:
        """Runs at most: pruned trials leave some out."""
        return self.trials * self.seeds

    @property
    def hours(self) -> float | None:
        """Hours at most, with all workers busy."""
        return None if self.pace is None else self.runs * self.each * self.pace / self.slots / 3600

    def document(self) -> dict[str, Any]:
        """As JSON."""
        amount = self.runs * self.each
        return {
            "profile": self.profile, "trials": self.trials, "seeds": self.seeds, "runs": self.runs,
            "parallel": self.slots, "completions": amount if self.unit == "completions" else None,
            "tokens": amount if self.unit == "tokens" else None, "hours": self.hours, "measured_on": self.measured_on,
        }  # fmt: skip

    def lines(self) -> list[str]:
        """As text."""
        found = [
            f"{self.sweep}, profile {self.profile}: {self.trials} trials x {self.seeds} seeds = {self.runs} runs, "
            f"{self.slots} at a time",
            f"{self.runs * self.each:,} {self.unit} at most, {self.each:,} per run",
        ]
        if self.hours is None:
            return [*found, "hours unknown: no run of this experiment and profile was measured here yet"]
        time = f"{self.hours:.1f} hours" if self.hours >= 1 else f"{60 * self.hours:.1f} minutes"
        return [*found, f"{time} at most, estimated from {self.measured_on}"]


def cost_of(sweep: SweepSpec, spec: RunSpec, home: Home, *, trials: int, slots: int) -> Cost:
    """The cost of so many trials like `spec`, one of its points."""
    unit, each = "completions", _planned(spec)
    if spec.budget is not None:
        unit, each = spec.budget.unit, spec.budget.amount
    pace, where = _pace(sweep, home, unit)
    return Cost(
        sweep=sweep.name, profile=sweep.profile, trials=trials, seeds=len(sweep.seeds), slots=slots,
        unit=unit, each=each, pace=pace, measured_on=where,
    )  # fmt: skip


def _planned(spec: RunSpec) -> int:
    return sum(stage.max_steps * stage.rows_per_step for stage in spec.stages.values())


def _pace(sweep: SweepSpec, home: Home, unit: str) -> tuple[float | None, str]:
    """(seconds per unit, by what): the newest study, else run, of the same experiment under the same profile."""
    for name, seconds, spent in (*_of_studies(sweep, home, unit), *_of_runs(sweep, home, unit)):
        if seconds > 0 and spent > 0:
            return seconds / spent, f"what {name} took"
    return None, ""


def _of_studies(sweep: SweepSpec, home: Home, unit: str) -> Iterator[tuple[str, float, float]]:
    for study in studies(home):
        with suppress(StorageError):
            found = read_json(study.state) or {}
            if (found.get("experiment"), found.get("profile")) == (sweep.experiment, sweep.profile):
                trials = [trial for trial in found.get("trials", ()) if trial.get("seconds")]
                yield study.id, sum(t["seconds"] for t in trials), sum(t.get(unit) or 0 for t in trials)


def _of_runs(sweep: SweepSpec, home: Home, unit: str) -> Iterator[tuple[str, float, float]]:
    for run in home.runs():
        with suppress(StorageError):
            found = read_json(run.result) or {}
            if (found.get("experiment"), found.get("profile")) == (sweep.experiment, sweep.profile):
                yield run.id, float(found.get("seconds") or 0), float((found.get("final") or {}).get(unit) or 0)
