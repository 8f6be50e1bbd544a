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
from grpoctl.analysis.sweeps.ranking import Learned, Ranking, learned, ranked, ruler_of
from grpoctl.analysis.sweeps.regions import RunFacts, run_facts
from grpoctl.analysis.sweeps.wording import short_keys
from grpoctl.files import read_json
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
    learned: Learned | None  # against the model where GRPO begins; None where that was not evaluated

    @property
    def metric(self) -> str:
        """What is ranked by."""
        return str(self.document.get("metric"))

    @property
    def start(self) -> float | None:
        """The metric where GRPO begins, where it is known: the mean over the candidates."""
        return None if self.learned is None else self.learned.start

    @property
    def sign(self) -> float:
        """1 where more is better, else -1."""
        return sign_of(self.document)

    def of_status(self, *statuses: str) -> list[Trial]:
        """The trials that stand so, by number."""
        return [trial for trial in self.trials.values() if trial["status"] in statuses]


def digest(document: Document) -> Digest:
    """The study taken apart. Reads nothing but, of older studies, the results of the best trial's runs."""
    trials = {int(trial["number"]): trial for trial in document.get("trials") or ()}
    direction, ruler = str(document.get("direction") or "maximize"), ruler_of(document)
    ranking = ranked(trials.values(), direction=direction, worst=number(document.get("worst")) or 0.0, ruler=ruler)
    trials = _with_starts(trials, ranking.best, ruler.metric)
    keys = [*(document.get("axes") or {}), *(key for trial in trials.values() for key in trial.get("params") or {})]
    return Digest(
        document=document,
        trials=trials,
        ranking=ranking,
        axes=tuple(axes_of(document)),
        facts=tuple(run_facts(document)),
        reached=near(document, ranking, sign=sign_of(document)),
        names=short_keys(keys),
        learned=learned(trials.values(), ranking, direction=direction, ruler=ruler),
    )


def sign_of(document: Document) -> float:
    """1 where more is better, else -1."""
    return -1.0 if document.get("direction") == "minimize" else 1.0


def _with_starts(trials: Mapping[int, Trial], best: int | None, metric: str) -> dict[int, Trial]:
    """The trials, each with its seeds' `starts`. Older studies do not have them: then what the best one's runs say."""
    known = any(start is not None for trial in trials.values() for start in trial.get("starts") or ())
    if known or best is None:
        return dict(trials)
    start = _start(metric, trials[best])
    return {index: {**trial, "starts": [start] * len(trial.get("values") or ())} for index, trial in trials.items()}


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
