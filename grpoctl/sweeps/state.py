"""`sweep.json`: the truth about a study, trial by trial, replaced in one stroke at each ask and tell.

What is here: the records, and reading and writing them. What is not: what the numbers mean (grpoctl.analysis), and the
study in Optuna's storage, which follows this file (storage).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from core.errors import StorageError
from grpoctl.analysis.sweeps.document import CONCLUSIONS, READABLE, SCHEMA, upgraded
from grpoctl.files import finite, read_json, replace_text
from grpoctl.runs.status import TrialStatus

Params = Mapping[str, Any]


class Point(NamedTuple):
    """One evaluation of a trial: the seed of its run, the share of that run's budget spent by then, the metric."""

    seed: int
    share: float
    value: float


Curve = tuple[Point, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialRecord:
    """One candidate and what became of it. `runs`, `statuses` and `findings` are of the runs that were started.

    `values` has one entry per seed, None where the seed gave none; `score` is their mean. `errors` are the values'
    standard errors over prompts, `starts` the metric where GRPO begins and `gain_errors` those of the gain since then,
    also one per seed; `stages` has the mean gain of each stage, `baselines` what the runs reached beside those of their
    task, as means (absent in the file where it has none). `curve` has every evaluation after a run's start, seed by
    seed, each seed's in the order of its steps; the metric is not turned round.
    `origin` says of which trial somebody made it a changed copy, `stopped` who ended it when (`sweep-edit`); both are
    absent in the file where they are empty.
    `curve_possibly_wrong` marks one that an older version wrote (grpoctl.analysis.sweeps.document says what was wrong).
    """

    number: int
    params: Params
    seeds: tuple[int, ...]
    name: str | None = None
    status: TrialStatus = TrialStatus.RUNNING
    score: float | None = None
    values: tuple[float | None, ...] = ()
    errors: tuple[float | None, ...] = ()
    starts: tuple[float | None, ...] = ()
    gain_errors: tuple[float | None, ...] = ()
    stages: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    baselines: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    attempts: int = 1
    runs: tuple[str, ...] = ()
    statuses: tuple[str, ...] = ()
    completions: int = 0
    tokens: int = 0
    seconds: float = 0.0
    message: str = ""
    curve: Curve = ()
    curve_possibly_wrong: bool = False
    findings: tuple[tuple[str, ...], ...] = ()
    expects: tuple[Mapping[str, Any], ...] = ()
    origin: Mapping[str, Any] = field(default_factory=dict)
    stopped: str = ""


class Book:
    """The study's document in memory: its header (everything but the trials) and its trials by number.

    `analysis` is what is computed at each tell and at the end: best, ranking, indistinguishable, importances, findings,
    conclusions; `intervals` by trial number stand with the trials in the file.
    """

    def __init__(self, path: Path, header: dict[str, Any], trials: Mapping[int, TrialRecord] | None = None) -> None:
        self.path, self.header = path, header
        self.trials: dict[int, TrialRecord] = dict(trials or {})
        self.analysis: dict[str, Any] = {}
        self.intervals: Mapping[int, Sequence[float] | None] = {}
        self._written: dict[int, _Written] = {}
        self._document: dict[str, Any] | None = None

    def document(self) -> dict[str, Any]:
        """The whole as plain values, as a reader of the file sees it after the last `save`."""
        if self._document is None:
            trials = [self._plain(self.trials[number]) for number in sorted(self.trials)]
            self._document = {"schema": SCHEMA, **self.header, "trials": trials, **self._analysis()}
        return self._document

    def changed(self) -> None:
        """The header or what is said was changed: `document` shows it before it is saved."""
        self._document = None

    def save(self) -> None:
        """Replace the file. Raises StorageError on a full or read-only disk; the old document then still stands."""
        self.changed()
        head = _json({"schema": SCHEMA, **self.header})[:-1]
        trials = ",\n".join(self._text(self.trials[number]) for number in sorted(self.trials))
        replace_text(self.path, f'{head},\n"trials": [\n{trials}\n],\n{_json(self._analysis())[1:]}\n')

    def best(self, number: int | None) -> dict[str, Any] | None:
        """What the file says of the trial that is ranked first."""
        if number is None:
            return None
        trial = self.trials[number]
        known = {"number": number, "name": trial.name, "params": dict(trial.params), "score": trial.score}
        return {**known, "interval": self._interval(number), "runs": list(trial.runs), "stages": dict(trial.stages)}

    def ordered(self) -> list[TrialRecord]:
        """The trials by number."""
        return [self.trials[number] for number in sorted(self.trials)]

    def _plain(self, trial: TrialRecord) -> dict[str, Any]:
        return {**self._as_written(trial).fields, "interval": self._interval(trial.number)}

    def _interval(self, number: int) -> Sequence[float] | None:
        interval = self.intervals.get(number)
        return None if interval is None else list(interval)

    def _analysis(self) -> dict[str, Any]:
        empty: dict[str, Any] = {
            "best": None,
            "ranking": [],
            "indistinguishable": [],
            "importances": {},
            "findings": [],
        }
        return {**empty, **self.analysis}

    def _text(self, trial: TrialRecord) -> str:
        """The trial as one line."""
        return f'{self._as_written(trial).text}, "interval": {json.dumps(self._interval(trial.number))}}}'

    def _as_written(self, trial: TrialRecord) -> _Written:
        """The trial without its interval, which alone can change of an old one: the rest is kept."""
        known = self._written.get(trial.number)
        if known is None or known.trial is not trial:
            fields = _fields(trial)
            known = _Written(trial=trial, fields=fields, text=_json(fields)[:-1])
            self._written[trial.number] = known
        return known


@dataclass(frozen=True, kw_only=True, slots=True)
class _Written:
    """What the document has of a trial, but for its interval: as plain values, and as the beginning of a line."""

    trial: TrialRecord
    fields: Mapping[str, Any]
    text: str


def _fields(trial: TrialRecord) -> dict[str, Any]:
    """The trial as plain values."""
    fields = {**dataclasses.asdict(trial), "status": str(trial.status)}
    return {name: value for name, value in fields.items() if value or name not in _LEFT_OUT_EMPTY}


_LEFT_OUT_EMPTY = ("baselines", "origin", "stopped")


def read_book(path: Path) -> Book:
    """The book in the file. Raises StorageError where there is none, it is damaged, or of another schema."""
    document = read_json(path)
    if document is None:
        raise StorageError(f"{path} is missing: the study cannot go on without it")
    if document.get("schema") not in READABLE:
        raise StorageError(f"{path}: schema {document.get('schema')!r}, this grpoctl reads schema {SCHEMA}")
    analysis = ("best", "ranking", "indistinguishable", "importances", "findings", *CONCLUSIONS)
    try:
        document = upgraded(document)
        trials = [_trial(entry) for entry in document["trials"]]
        intervals = {entry["number"]: entry["interval"] for entry in document["trials"]}
    except (KeyError, TypeError, ValueError) as error:
        raise StorageError(f"{path}: damaged ({type(error).__name__}: {error})") from error
    if lacking := {"study", "status", "total", "lag"} - document.keys():
        raise StorageError(f"{path}: damaged (it has no {min(lacking)})")
    header = {key: value for key, value in document.items() if key not in ("schema", "trials", *analysis)}
    book = Book(path, header, {trial.number: trial for trial in trials})
    book.analysis = {key: document[key] for key in analysis if key in document}
    book.intervals = intervals
    return book


def _trial(entry: Mapping[str, Any]) -> TrialRecord:
    names = {field.name for field in dataclasses.fields(TrialRecord)}
    known = {key: value for key, value in entry.items() if key in names}
    return TrialRecord(
        **{
            **known,
            "status": TrialStatus(known["status"]),
            "seeds": tuple(known["seeds"]),
            "values": tuple(known["values"]),
            **{key: tuple(known.get(key) or ()) for key in ("errors", "starts", "gain_errors")},
            "runs": tuple(known["runs"]),
            "statuses": tuple(known["statuses"]),
            "curve": tuple(Point(int(seed), float(share), float(value)) for seed, share, value in known["curve"]),
            "findings": tuple(tuple(rules) for rules in known["findings"]),
            "expects": tuple(known["expects"]),
        }
    )


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(finite(value), allow_nan=False)  # ASCII: half a surrogate pair in a message is no UTF-8
