"""How long something will take, from what runs and studies like it took here by the clock: a range, or nothing.

What is here: rates of the runs and studies of a home, and the interval that they allow. What is not: what is to be run.
Seconds are of the clock from a run's start to its end. Those before and after training come once, so that a short run
says what a long one takes, and the other way round.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from core.config import RunSpec
from core.errors import StorageError
from core.health.statistics import mean, t_quantile
from grpoctl.files import read_json
from grpoctl.runs import status
from grpoctl.runs.run_dir import Home, RunDir
from grpoctl.runs.status import FINISHED
from grpoctl.runs.study_dir import StudyDir, studies
from grpoctl.wording import plural

# Before anything is known of the spread between runs of a machine: a standard deviation of the logarithm, which counts
# as much as PRIOR_DF measured differences. One measurement alone then stands for a quarter to four times of it.
PRIOR_SD, PRIOR_DF = 0.35, 4
MOST = 20  # of the newest runs or studies


@dataclass(frozen=True, kw_only=True, slots=True)
class Rate:
    """Seconds of one worker, as `name` had it: those before and after training once, the others for each completion."""

    name: str
    seconds: float  # for one completion or token
    alone: bool  # a run that had the machine's cores for itself
    start: float = 0.0  # importing and loading, once, however much is trained

    @classmethod
    def of(cls, name: str, *, took: float, trained: float, spent: float, workers: int = 0) -> Rate:
        """Of what took so long by the clocks of its workers (0: a run), `trained` of it; 0 where that is unknown."""
        trained = min(trained, took) or took
        start = (took - trained) / (workers or 1)
        return cls(name=name, seconds=trained / spent, alone=not workers, start=start)


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
    """How long `amount` units will take so many workers, each of which starts once; None where nothing was measured.

    Rates of runs that were alone say nothing of how runs share the cores: the range is then from workers that do not
    disturb each other to workers that gain nothing.
    """
    if not rates:
        return None
    logs = [math.log(rate.start * workers + rate.seconds * amount) for rate in rates]
    factor = spread(logs)
    whole = math.exp(mean(logs))
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Like:
    """What a run must share with what was measured: another trainer has another clock, though the work is the same."""

    experiment: str
    profile: str
    trainer: str  # grpoctl, trl or command
    unit: str

    @classmethod
    def of(cls, spec: RunSpec, experiment: str | None = None) -> Like:
        """Of a run of this spec; `experiment` where a sweep names another one than the run."""
        unit, _ = budget_of(spec)
        name = experiment or spec.name
        return cls(experiment=name, profile=spec.profile, trainer=spec.trainer.kind, unit=unit)


def rates_of_runs(home: Home, like: Like) -> list[Rate]:
    """Those of the newest finished runs of an experiment under a profile, those that were resumed left out."""
    rates = []
    for run in home.runs():
        with suppress(StorageError):
            if (rate := _of_run(run, like)) is not None:
                rates.append(rate)
        if len(rates) == MOST:
            break
    return rates


def _of_run(run: RunDir, like: Like) -> Rate | None:
    result, record = read_json(run.result) or {}, status.read(run.status)
    attempts = (read_json(run.provenance) or {}).get("attempts") or ()
    spent = float((result.get("final") or {}).get(like.unit) or 0)
    mine = (result.get("experiment"), result.get("profile"), _trainer_of(result))
    if mine != (like.experiment, like.profile, like.trainer):
        return None
    if record is None or record.ended is None or len(attempts) > 1 or record.status not in FINISHED:
        return None
    took = record.ended - record.started
    trained = float(result.get("seconds") or 0)
    return Rate.of(run.id, took=took, trained=trained, spent=spent) if took > 0 and spent > 0 else None


def _trainer_of(result: Mapping[str, Any]) -> str:
    return str(result.get("trainer", "grpoctl"))  # only another one is said


def rates_of_studies(home: Home, like: Like) -> list[Rate]:
    """Those of the newest studies over an experiment under a profile: of each of its workers."""
    return list(_of_studies(home, like))[:MOST]


def _of_studies(home: Home, like: Like) -> Iterator[Rate]:
    for study in studies(home):
        with suppress(StorageError):
            document = read_json(study.state) or {}
            trials = document.get("trials") or ()
            spent = sum(float(trial.get(like.unit) or 0) for trial in trials)
            trained = sum(float(trial.get("seconds") or 0) for trial in trials)
            workers = int(document.get("workers") or 0)  # older ones do not say
            worked = float(document.get("seconds") or 0) * workers
            mine = (document.get("experiment"), document.get("profile"))
            if mine != (like.experiment, like.profile) or not worked or not spent:
                continue
            if _trainer_in(study, trials) == like.trainer:
                yield Rate.of(study.id, took=worked, trained=trained, spent=spent, workers=workers)


def _trainer_in(study: StudyDir, trials: Sequence[Mapping[str, Any]]) -> str | None:
    """Who trained the runs of a study; None where trials chose."""
    if any(key in ("trainer", "trainer.kind") for trial in trials for key in trial.get("params") or ()):
        return None
    results = (read_json(run.result) for run in study.runs())
    return _trainer_of(next((result for result in results if result is not None), {}))
