"""A study's `sweep.json` for those who only look: read as it is true now, summarised, and digested.

Findings, report and figures all read the digest. What is not here: writing the file (grpoctl.sweeps).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from core.errors import StorageError
from core.health.statistics import mean
from grpoctl.analysis.collect import number
from grpoctl.analysis.sweeps.axes import Axis, at_end, axes_of, ends_of
from grpoctl.analysis.sweeps.budget import NearBest, account, near
from grpoctl.analysis.sweeps.effects import AxisEffect, axis_effects
from grpoctl.analysis.sweeps.outlook import Longer, MoreSeeds, longer, more_seeds
from grpoctl.analysis.sweeps.ranking import LearnedGain, Ranking, learned, ranked, ruler_of, seed_values
from grpoctl.analysis.sweeps.regions import RunFacts, run_facts
from grpoctl.analysis.sweeps.selection import SelectionBias, selection_bias
from grpoctl.analysis.sweeps.wording import score_text, short_keys
from grpoctl.files import read_json
from grpoctl.runs.liveness import study_status
from grpoctl.runs.run_dir import Home, RunDir
from grpoctl.runs.study_dir import StudyDir, studies

SCHEMA = 2  # 2: a curve's points are (seed, share, value); 1: (seed's index + share, value)
READABLE = (1, SCHEMA)
CONCLUSIONS = ("selection_bias", "gain_over_start", "axis_effects", "more_budget", "next")  # keys of what is concluded

# What arithmetic on odd numbers raises: the report of a study does without the part.
_REFUSALS = (ArithmeticError, LookupError, TypeError, ValueError)

T = TypeVar("T")
Document = Mapping[str, Any]
Trial = Mapping[str, Any]


def read_study(study: StudyDir) -> dict[str, Any]:
    """The document of a study; INTERRUPTED where it says RUNNING and nobody drives it, its running trials too.

    Its runs are named where they are now, wherever the study was when it ran. A study whose driver died before it wrote
    anything has no trials. Raises StorageError where the file is damaged or
    of another schema.
    """
    document = read_json(study.state)
    if document is None:
        empty = {"schema": SCHEMA, "study": study.id, "sweep": study.id.rsplit("-", 3)[0], "status": "RUNNING"}
        document = {**empty, "total": 0, "trials": [], "best": None, "importances": {}, "findings": []}
    if document.get("schema") not in READABLE:
        raise StorageError(f"{study.state}: schema {document.get('schema')!r}, this grpoctl reads schema {SCHEMA}")
    if not isinstance(document.get("trials"), list) or not isinstance(document.get("status"), str):
        raise StorageError(f"{study.state}: damaged (it has no list of trials, or no status)")
    try:
        document = _here(upgraded(document), study)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise StorageError(f"{study.state}: damaged ({type(error).__name__}: {error})") from error
    if document.get("status") == "RUNNING" and not study.is_held():
        status, message = study_status(study)  # reads again: it may have come to its end just now
        if status != "RUNNING":
            stopped = [{**t, "status": status} if t.get("status") == "RUNNING" else t for t in document["trials"]]
            document = {**document, "status": status, "message": message, "trials": stopped}
    return document


def _here(document: dict[str, Any], study: StudyDir) -> dict[str, Any]:
    """The document with the paths of runs in the study's folder as it is now; those that are not there stay."""
    folder = study.path.absolute() / "runs"

    def moved(entry: Mapping[str, Any]) -> dict[str, Any]:
        paths = [Path(path) for path in entry.get("runs") or ()]
        if all(path.parent == folder for path in paths):
            return dict(entry)
        here = [folder / path.name if (folder / path.name).is_dir() else path for path in paths]
        return {**entry, "runs": [str(path) for path in here]}

    best = document.get("best")
    found = {**document, "trials": [moved(trial) for trial in document["trials"]]}
    return {**found, "best": moved(best)} if best else found


def upgraded(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document of a study as schema 2 has it; one of schema 2 as it is.

    Schema 1 kept a report under the seed's index + the share of its run's budget, so that an evaluation before anything
    of a run's budget was spent (in a supervised stage) replaced the last value of the run before it. Such a curve is
    read, and its trial is marked: `curve_possibly_wrong`. Raises KeyError, TypeError, ValueError for damaged ones.
    """
    if document.get("schema") == SCHEMA:
        return dict(document)
    return {**document, "schema": SCHEMA, "trials": [_upgraded_trial(trial) for trial in document["trials"]]}


def _upgraded_trial(trial: Mapping[str, Any]) -> dict[str, Any]:
    points: list[Sequence[float]] = list(trial.get("curve") or ())
    if not any(len(point) == 2 for point in points):
        return dict(trial)
    seeds, curve = list(trial["seeds"]), []
    for units, value in points:
        index = max(0, math.ceil(units - 1e-6) - 1)  # the end of a run belonged to that run
        curve.append([seeds[index], round(units - index, 6), value])
    return {**trial, "curve": curve, "curve_possibly_wrong": True}


def study_summaries(home: Home) -> list[dict[str, Any]]:
    """One entry per study, the one begun last first; a damaged one is listed as such."""
    return [study_summary(study) for study in studies(home)]


def study_summary(study: StudyDir) -> dict[str, Any]:
    """study, sweep, profile, status, message, ended and total (trials), metric, best (number, score, interval)."""
    entry: dict[str, Any] = {"study": study.id, "study_dir": str(study.path), "ended": None, "total": None}
    try:
        document = read_study(study)
    except StorageError as error:
        sweep = study.id.rsplit("-", 3)[0]
        return {**entry, "sweep": sweep, "status": "DAMAGED", "message": str(error), "metric": None, "best": None}
    stands = account(document)
    best = document.get("best") or None
    return {
        **entry,
        **{key: document.get(key) for key in ("sweep", "profile", "status", "message", "metric")},
        "ended": stands.ended,
        "total": stands.total,
        "best": {key: best.get(key) for key in ("number", "score", "interval")} if best else None,
    }


def study_row(entry: Mapping[str, Any]) -> tuple[str, str, str, str]:
    """(study, status, trials, best) of a summary, for a table."""
    trials = "-" if entry["total"] is None else f"{entry['ended']}/{entry['total']}"
    best = entry["best"]
    if not best:
        return entry["study"], entry["status"], trials, "-"
    score = score_text(str(entry["metric"]), best["score"], best["interval"])
    return entry["study"], entry["status"], trials, f"{entry['metric']} {score} (#{best['number']})"


@dataclass(frozen=True, kw_only=True, slots=True)
class Digest:
    """A study, its ranking, its axes and how its runs went, computed once for all who say something of it."""

    document: Document
    trials: Mapping[int, Trial]
    ranking: Ranking
    axes: tuple[Axis, ...]
    facts: tuple[RunFacts, ...]
    reached: NearBest | None
    names: Mapping[str, str]  # dotted key of a parameter -> short name
    learned: LearnedGain | None  # against the model where GRPO begins; None where that was not evaluated
    selection: SelectionBias | None  # of the best; None where no noise is known to tell it by
    effects: tuple[AxisEffect, ...]
    longer: Longer
    more_seeds: MoreSeeds | None

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

    @property
    def so_far(self) -> str:
        """How far a study came that is not COMPLETED, as part of a sentence; empty where it is."""
        if self.document.get("status") == "COMPLETED":
            return ""
        if search := self.document.get("search"):
            return f"so far ({search['runs']:.1f} of {search['of']:g} runs' budgets spent)"
        stands = account(self.document)
        return f"so far (of the {stands.ended} of {stands.total} trials that ended)"

    @property
    def nothing_learned(self) -> bool:
        """True where no ranked candidate has a significant gain over the model that its GRPO starts from."""
        return (
            self.learned is not None
            and self.learned.tested
            and len(self.learned.unproven) == len(self.ranking.order) > 0
        )

    @property
    def higher(self) -> tuple[int, ...]:
        """Who has a better mean over all of its seeds than the first, which is ahead by those in common."""
        best, scores = self.ranking.best, self.ranking.scores
        return tuple(i for i in self.ranking.order if best is not None and self.sign * (scores[i] - scores[best]) > 0)

    @property
    def edges(self) -> list[tuple[str, float, str]]:
        """(key, end, word) where every candidate of the best set stands at one end of an axis of numbers.

        Nothing lies below 0, so 0 is no end.
        """
        chosen = self.ranking.indistinguishable
        if not chosen or self.ranking.noise is None:
            return []
        stands = []
        for key, spec in (self.document.get("axes") or {}).items():
            values = [number((self.trials[index].get("params") or {}).get(key)) for index in chosen]
            for end, word in ends_of(spec or {}):
                if end and all(value is not None and at_end(value, end, spec) for value in values):
                    stands.append((key, end, word))
        return stands

    @property
    def supervised(self) -> tuple[str, ...]:
        """The stages of the best candidate before the one that GRPO begins with: those that end where it starts."""
        best = self.ranking.best
        stages = {} if best is None else self.trials[best].get("stages") or {}
        if best is None or self.learned is None or len(stages) < 2:
            return ()
        starts = [start for start in map(number, self.trials[best].get("starts") or ()) if start is not None]
        begins = mean(starts) if starts else math.nan
        before: list[str] = []
        for name, gain in stages.items():
            start = number(gain.get("start"))
            if start is not None and math.isclose(start, begins, rel_tol=1e-6, abs_tol=1e-9):
                return tuple(before)
            before.append(name)
        return ()

    def of_status(self, *statuses: str) -> list[Trial]:
        """The trials of these statuses, by number."""
        return [trial for trial in self.trials.values() if trial["status"] in statuses]


def digest(document: Document) -> Digest:
    """The digest of a study's document. Reads nothing but, of older studies, the results of the best trial's runs."""
    trials = {int(trial["number"]): trial for trial in document.get("trials") or ()}
    direction, ruler = str(document.get("direction") or "maximize"), ruler_of(document)
    worst, search = number(document.get("worst")) or 0.0, document.get("search") or {}
    ranking = ranked(
        trials.values(), direction=direction, worst=worst, ruler=ruler, believed=search.get("believed")
    )  # fmt: skip
    trials = _with_starts(trials, ranking.best, ruler.metric)
    sign = sign_of(document)
    keys = [*(document.get("axes") or {}), *(key for trial in trials.values() for key in trial.get("params") or {})]
    return Digest(
        document=document,
        trials=trials,
        ranking=ranking,
        axes=tuple(axes_of(document)),
        facts=tuple(run_facts(document)),
        reached=near(document, ranking, sign=sign),
        names=short_keys(keys),
        learned=learned(trials.values(), ranking, direction=direction, ruler=ruler),
        selection=_spared(lambda: selection_bias(ranking, sign=sign, seeds=_seeds_of_best(trials, ranking)), None),
        effects=_spared(lambda: axis_effects(document, ranking), ()),
        longer=_spared(lambda: longer(trials, ranking, sign=sign), Longer(trend="unknown")),
        more_seeds=_spared(lambda: more_seeds(ranking), None),
    )


def _seeds_of_best(trials: Mapping[int, Trial], ranking: Ranking) -> list[float]:
    """The values of the best candidate's seeds."""
    return [] if ranking.best is None else seed_values(trials[ranking.best], 0.0)


def _spared(compute: Callable[[], T], without: T) -> T:
    """What is computed, or what to say without it: one part that fails must not take the report with it."""
    try:
        return compute()
    except _REFUSALS:
        return without


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
    starts = []
    for path in trial.get("runs") or () if metric.startswith("eval/") else ():  # others have no value before step 1
        try:
            result = read_json(RunDir(path=Path(path)).result) or {}
        except StorageError:
            continue
        value = number((result.get("start") or {}).get(metric))
        starts += [] if value is None else [value]
    return mean(starts) if starts else None
