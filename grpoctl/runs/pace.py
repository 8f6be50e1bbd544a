"""How long something will take, from what runs and studies like it took here by the clock: a range, or nothing.

What is here: rates of the runs and studies of a home, and the interval that they allow. What is not: what is to be run.
Seconds are of the clock from a run's start to its end: importing, loading and evaluating included, which the seconds of
its steps are not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from core.config import RunSpec
from core.errors import StorageError
from core.health.statistics import mean, t_quantile
from grpoctl.files import read_json
from grpoctl.runs import status
from grpoctl.runs.run_dir import Home, RunDir
from grpoctl.runs.status import FINISHED
from grpoctl.runs.study_dir import studies
from grpoctl.wording import plural

# Before anything is known of the spread between runs of a machine: a standard deviation of the logarithm, which counts
# as much as PRIOR_DF measured differences. One measurement alone then stands for a quarter to four times of it.
PRIOR_SD, PRIOR_DF = 0.35, 4
MOST = 20  # of the newest runs or studies


@dataclass(frozen=True, kw_only=True, slots=True)
class Rate:
    """Seconds of one worker for one completion or token, as `name` had it."""

    name: str
    seconds: float
    alone: bool  # a run that had the machine's cores for itself


@dataclass(frozen=True, kw_only=True, slots=True)
class Duration:
    """Seconds: the middle and the ends of a 95 % prediction interval, and of how many measurements."""

    seconds: float
    low: float
    high: float
    measured_on: str

    @property
    def text(self) -> str:
        """`about 2.4 minutes (1.1 to 5.2; 95 %, from 3 runs here, the newest ...)`."""
        unit, size = next((name, size) for name, size in _UNITS if self.seconds >= size or size == 1)
        middle, low, high = (_short(value / size) for value in (self.seconds, self.low, self.high))
        return f"about {middle} {unit} ({low} to {high}; 95 %, {self.measured_on})"


_UNITS = (("hours", 3600.0), ("minutes", 60.0), ("seconds", 1.0))


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"


def spread(logs: Sequence[float], ahead: int = 1) -> float:
    """The factor that the mean of `ahead` further rates is within, either way, with 95 %; `logs` are known rates'."""
    n = len(logs)
    own = 0.0 if n < 2 else sum((value - mean(logs)) ** 2 for value in logs)
    df = max(n - 1, 0) + PRIOR_DF
    variance = (own + PRIOR_DF * PRIOR_SD**2) / df
    return math.exp(t_quantile(0.975, df) * math.sqrt(variance * (1 / max(n, 1) + 1 / max(ahead, 1))))


def duration(rates: Sequence[Rate], amount: float, *, workers: int = 1) -> Duration | None:
    """How long `amount` units will take so many workers; None where nothing was measured.

    Rates of runs that were alone say nothing of how runs share the cores: the range is then from workers that do not
    disturb each other to workers that gain nothing.
    """
    if not rates:
        return None
    logs = [math.log(rate.seconds) for rate in rates]
    factor = spread(logs)
    whole = math.exp(mean(logs)) * amount
    shared = math.sqrt(workers) if workers > 1 and any(rate.alone for rate in rates) else 1.0
    middle = whole / workers * shared
    kind = "run" if rates[0].alone else "study"
    count = f"{len(rates)} studies" if kind == "study" and len(rates) > 1 else plural(len(rates), kind)
    newest = "" if len(rates) == 1 else ", the newest"
    return Duration(
        seconds=middle,
        low=middle / factor / shared,
        high=middle * factor * shared,
        measured_on=f"by the clock of {count} here{newest} {rates[0].name}",
    )


def budget_of(spec: RunSpec) -> tuple[str, int]:
    """(unit, amount) of what a run spends: its budget, else the completions of all its steps."""
    if spec.budget is not None:
        return spec.budget.unit, spec.budget.amount
    return "completions", sum(stage.max_steps * stage.rows_per_step for stage in spec.stages.values())


def rates_of_runs(home: Home, experiment: str, profile: str, unit: str) -> list[Rate]:
    """Those of the newest finished runs of an experiment under a profile, those that were resumed left out."""
    rates = []
    for run in home.runs():
        with suppress(StorageError):
            if (rate := _of_run(run, experiment, profile, unit)) is not None:
                rates.append(rate)
        if len(rates) == MOST:
            break
    return rates


def _of_run(run: RunDir, experiment: str, profile: str, unit: str) -> Rate | None:
    result, record = read_json(run.result) or {}, status.read(run.status)
    attempts = (read_json(run.provenance) or {}).get("attempts") or ()
    spent = float((result.get("final") or {}).get(unit) or 0)
    like = (result.get("experiment"), result.get("profile")) == (experiment, profile)
    if not like or record is None or record.ended is None or len(attempts) > 1 or record.status not in FINISHED:
        return None
    took = record.ended - record.started
    return Rate(name=run.id, seconds=took / spent, alone=True) if took > 0 and spent > 0 else None


def rates_of_studies(home: Home, experiment: str, profile: str, unit: str) -> list[Rate]:
    """Those of the newest studies over an experiment under a profile: of each of its workers."""
    return list(_of_studies(home, experiment, profile, unit))[:MOST]


def _of_studies(home: Home, experiment: str, profile: str, unit: str) -> Iterator[Rate]:
    for study in studies(home):
        with suppress(StorageError):
            document = read_json(study.state) or {}
            spent = sum(float(trial.get(unit) or 0) for trial in document.get("trials") or ())
            worked = float(document.get("seconds") or 0) * int(document.get("workers") or 0)  # older ones do not say
            if (document.get("experiment"), document.get("profile")) == (experiment, profile) and worked and spent:
                yield Rate(name=study.id, seconds=worked / spent, alone=False)
