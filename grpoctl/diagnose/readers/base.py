"""What a reader is: it says whether a source is its own, and makes a case of it. And which values it may give a metric:
no share outside 0 to 1, no negative count or deviation. A CSV is refused for such a value, since it can be mended by
hand; of any other source the value is left out. And which NaN says that nothing was logged. The list of readers is in
registry.py.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any, Protocol

from core.health.case import Case
from core.health.finding import StepTable
from core.metrics import declared

_SHARES = ("groups/right", "policy/clip_share", "sampler/masked")  # of foreign logs
TOO_SMALL = ("learning_rate", "beta", "kl")  # what few decimals round to 0
SOME_WRONG = 0.1  # of a column's values: with more that a metric cannot have, it is another metric's
MANY = 10  # values: of fewer no share says that
_SLACK = 1e-6  # of a mean of shares in float32
_NOT_NEGATIVE = (
    "entropy", "grad_norm", "learning_rate", "temperature", "eval/temperature", "samples", "completions/longest",
    "completions/shortest", "completions/length_ended", "sampler/ratio_mean", "sampler/ratio_min", "sampler/ratio_max",
    "sampler/prob_gap", "sampler/prob_gap_max",
)  # fmt: skip
_DEVIATIONS = ("/std", "_std", "/std_all", "_se", "logprob_gap", "logprob_gap_max")
# What is no number once a weight is none, and what is none once a reward is.
_WEIGHTS = ("loss", "policy/", "grad_norm", "kl", "entropy", "sampler/", "rollout/logprob_gap", "advantage/")
_EARNED = ("reward/", "rewards/", "advantage/", "loss", "policy/loss", "grad_norm")
_KINDS_OF_ROWS = 50  # by which metrics have numbers on them; of more no pattern is one
_COMES_BACK = 3  # times that rows with numbers follow rows without any
NOT_LOGGED = "NaN on {} of {} rows is taken for nothing: no metric of its kind is logged there"


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """What the user named, and said of it.

    columns: column of a CSV -> metric (--map); settings: what is known of the configuration (--set), which goes before
    what a reader finds. live: the log of a run that a command trains: it grows, so what `trainer.map` names may come
    later, and messages speak of that key.
    """

    name: str  # as typed: a path, a run's id, an MLflow URI or run id
    path: Path | None  # the path, where there is something of that name
    columns: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    live: bool = False
    glance: bool = False  # it is one of a folder's files: only its beginning is looked at, to say whether it is a log

    @property
    def mapped_by(self) -> str:
        """What says which column is which metric."""
        return "trainer.map" if self.live else "--map"

    @property
    def how_to_map(self) -> str:
        """How a column is named."""
        return "trainer.map: {METRIC: COLUMN}" if self.live else '--map "COLUMN=METRIC"'


@dataclass(frozen=True, kw_only=True, slots=True)
class Unread:
    """A kind of line that looks like metrics and was not read: the first of it, and how often it came."""

    line: int  # from 1
    text: str
    count: int = 1

    def __str__(self) -> str:
        more = f" (and {self.count - 1} more such lines)" if self.count > 1 else ""
        return f"line {self.line}: {self.text}{more}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """A source as a case. `notes`: what the reader had to leave out or guess, a sentence each.

    extra: numbers of this format that no rule needs and the report shows (flat name -> number).
    """

    case: Case
    kind: str  # the reader's name: grpoctl, mlflow, trainer-state, console, seed-log, csv
    source: str  # what was read, as the report names it
    spec: str | None = None  # the experiment of ours it was run from
    notes: tuple[str, ...] = ()
    extra: Mapping[str, float] = field(default_factory=dict)
    not_understood: tuple[Unread, ...] = ()
    document: Mapping[str, Any] | None = None  # result.json of a run of ours; before that, what it was started as
    run: str = ""  # what a source of several runs calls the one that this is
    further: tuple[Reading, ...] = ()  # the other runs of such a source
    whole: bool = True  # False for a run of ours that did not come to an end of its own
    pictures: tuple[Path, ...] = ()  # PNG images of what evaluations answered, of a run that keeps some: first and last


class Reader(Protocol):
    """One format. `looks_for`: what that is in a few words, for the message that no reader knew the source."""

    name: str
    looks_for: str

    def knows(self, source: Source) -> bool:
        """Whether the source is of this format; reads as little as it can, and raises nothing."""
        ...

    def read(self, source: Source) -> Reading:
        """The case. Raises core.errors.GrpoError with one line where the source is of this format and broken."""
        ...


def impossible(metric: str, value: float) -> str | None:
    """Why the metric cannot have that value, and what to write instead; None where it can."""
    known = declared(metric)
    unit = known.unit if known is not None else ""
    if unit in ("fraction", "0/1") or metric in _SHARES:
        if -_SLACK <= value <= 1 + _SLACK:
            return None
        hint = f": write {value:g}% or {value / 100:g}" if 1 < value <= 100 and unit != "0/1" else ""
        return f"a share is between 0 and 1{hint}"
    signless = unit in ("count", "tokens") or metric in _NOT_NEGATIVE or metric.endswith(_DEVIATIONS)
    return "it cannot be negative" if signless and value < 0 else None


def without_absent(rows: Sequence[dict[str, float | None]]) -> tuple[Sequence[dict[str, float | None]], list[str]]:
    """The rows without the NaN that a table has where nothing was logged, as pandas writes it, and a note if there is.

    Such a table has every metric on every row. A metric's kind are those that have numbers on most of the rows where it
    has one. A NaN is nothing where no metric of its kind has a number on that row, and other metrics have. Without
    others: where the kind comes and goes, and neither a weight nor a reward that is NaN makes all of it NaN.
    """
    padded = any(None in row.values() for row in rows) and all(row.keys() == rows[0].keys() for row in rows)
    if not padded:
        return rows, []
    told = [frozenset(name for name, value in row.items() if value is not None) for row in rows]
    alike = Counter(told)
    if len(alike) > _KINDS_OF_ROWS:
        return rows, []
    kinds = {name: _kind(name, alike) for name in rows[0] if any(name in names for names in alike)}
    comes_back = sum(bool(after) and not before for before, after in pairwise(told))

    def is_absent(name: str, at: int) -> bool:
        kind = kinds.get(name, frozenset())
        if not kind or kind & told[at]:
            return False
        return bool(told[at]) or (
            comes_back >= _COMES_BACK and not any(_all_of(kind, made) for made in (_WEIGHTS, _EARNED))
        )

    logged = [
        {name: value for name, value in row.items() if value is not None or not is_absent(name, at)}
        for at, row in enumerate(rows)
    ]
    fewer = sum(len(row) < len(whole) for row, whole in zip(logged, rows, strict=True))
    return logged, [NOT_LOGGED.format(fewer, len(rows))] if fewer else []


def _kind(metric: str, rows: Counter[frozenset[str]]) -> frozenset[str]:
    """The metrics that are told on most rows where this one is."""
    with_it = [(names, count) for names, count in rows.items() if metric in names]
    beside = Counter[str]()
    for names, count in with_it:
        beside.update(dict.fromkeys(names, count))
    most = sum(count for _, count in with_it) / 2
    return frozenset(name for name, count in beside.items() if count > most)


def _all_of(metrics: Iterable[str], beginnings: tuple[str, ...]) -> bool:
    return all(name.startswith(beginnings) for name in metrics)


def _has_bounds(metric: str) -> bool:
    """Whether there are numbers that the metric cannot have."""
    return impossible(metric, -math.inf) is not None or impossible(metric, math.inf) is not None


def _column(rows: StepTable, name: str) -> list[float]:
    """The values of a column; quickly where every row has one."""
    try:
        values: list[float | None] = list(map(itemgetter(name), rows))
    except KeyError:
        values = [row.get(name) for row in rows]
    return [value for value in values if value is not None] if None in values else values  # type: ignore[return-value]


def without_impossible(rows: StepTable) -> tuple[StepTable, list[str]]:
    """The rows without values that their metric cannot have, and a note for each such metric."""
    values: dict[str, list[float]] = {}
    why: dict[str, str] = {}  # of the metrics with such a value: a bound is crossed by the least or the greatest
    alike = dict.fromkeys(map(tuple, rows))  # the names of rows, in their order
    for name in filter(_has_bounds, dict.fromkeys(name for names in alike for name in names)):
        values[name] = known = _column(rows, name)
        if known and (reason := impossible(name, min(known)) or impossible(name, max(known))):
            why[name] = reason
    if not why:
        return rows, []

    wrong = {name: sum(impossible(name, value) is not None for value in values[name]) for name in why}
    other = {  # something else is called so
        name for name in why if len(values[name]) >= MANY and wrong[name] > SOME_WRONG * len(values[name])
    }

    def is_wrong(name: str, value: float | None) -> bool:
        return name in why and value is not None and (name in other or impossible(name, value) is not None)

    counts = {name: len(values[name]) if name in other else wrong[name] for name in why}
    notes = [f"{name}: {counts[name]} of {len(values[name])} values left out: {why[name]}" for name in why]
    return [{name: value for name, value in row.items() if not is_wrong(name, value)} for row in rows], notes
