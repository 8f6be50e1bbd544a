"""A study's document taken apart once: what findings, report and figures all read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.errors import StorageError
from core.health.statistics import mean
from grpoctl.analysis.collect import number
from grpoctl.analysis.sweeps.axes import Axis, axes_of
from grpoctl.analysis.sweeps.cost import Reached, near
from grpoctl.analysis.sweeps.ranking import Ranking, ranked
from grpoctl.analysis.sweeps.regions import RunFacts, run_facts
from grpoctl.analysis.sweeps.wording import short_keys
from grpoctl.runs.records import read_json
from grpoctl.runs.run_dir import RunDir

Document = Mapping[str, Any]
Trial = Mapping[str, Any]

_EVALUATED = "eval/"  # only what is evaluated is known before the first step


@dataclass(frozen=True, kw_only=True, slots=True)
class Digest:
    """A study, its ranking, its axes, how its runs went. `sign` is 1 where more is better, else -1."""

    document: Document
    trials: Mapping[int, Trial]
    ranking: Ranking
    axes: tuple[Axis, ...]
    facts: tuple[RunFacts, ...]
    reached: Reached | None
    names: Mapping[str, str]  # dotted key of a parameter -> short name
    start: float | None  # the metric before training, where it is known

    @property
    def metric(self) -> str:
        """What is ranked by."""
        return str(self.document.get("metric"))

    @property
    def sign(self) -> float:
        """1 where more is better, else -1."""
        return sign_of(self.document)

    def of_status(self, *statuses: str) -> list[Trial]:
        """The trials that stand so, by number."""
        return [trial for trial in self.trials.values() if trial["status"] in statuses]


def digest(document: Document) -> Digest:
    """The study taken apart. Reads nothing but, for the value before training, the results of the best trial's runs."""
    trials = {int(trial["number"]): trial for trial in document.get("trials") or ()}
    ranking = ranked(
        trials.values(),
        direction=str(document.get("direction") or "maximize"),
        worst=number(document.get("worst")) or 0.0,
    )
    keys = [*(document.get("axes") or {}), *(key for trial in trials.values() for key in trial.get("params") or {})]
    return Digest(
        document=document,
        trials=trials,
        ranking=ranking,
        axes=tuple(axes_of(document)),
        facts=tuple(run_facts(document)),
        reached=near(document, ranking, sign=sign_of(document)),
        names=short_keys(keys),
        start=None if ranking.best is None else _start(str(document.get("metric")), trials[ranking.best]),
    )


def sign_of(document: Document) -> float:
    """1 where more is better, else -1."""
    return -1.0 if document.get("direction") == "minimize" else 1.0


def _start(metric: str, trial: Trial) -> float | None:
    """The metric before the first step, mean over the runs that have it: all candidates start from the same weights."""
    found = []
    for path in trial.get("runs") or () if metric.startswith(_EVALUATED) else ():
        try:
            result = read_json(RunDir(path=Path(path)).result) or {}
        except StorageError:
            continue
        value = number((result.get("start") or {}).get(metric))
        found += [] if value is None else [value]
    return mean(found) if found else None
