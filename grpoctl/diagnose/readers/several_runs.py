"""A file of several runs: what tells them apart, what they are called, and their readings as one.

What is not here: which columns, parts or labels name a run (the readers of each format).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from itertools import count

from core.errors import SpecError
from grpoctl.diagnose.readers.base import Reading
from grpoctl.diagnose.readers.metric_names import SPLITS, TOTALS

MOST_RUNS = 8  # of one file that are read
SHARED = 0.5  # of a run's rows, at least, are of a step that another one tells, too: a resumed run hardly overlaps
_FEWEST_ROWS = 2  # of each run: names of which each has one row number the rows
_NO_LEARNERS = frozenset({"base", "baseline", "reference", "ref", "teacher", "judge", "opponent"})
_OF_NO_KIND = frozenset({"model", "policy", "sft", "init", "initial", "the", "untrained"})
_OF_UPDATES = ("learning_rate", "loss", "policy/loss", "grad_norm")
_LONGEST_NAME = 60  # characters


class NoMetricError(SpecError):
    """A file, or a run in it, of which no metric is known."""


def are_runs(steps_of: Mapping[str, Sequence[Hashable]]) -> bool:
    """Whether names tell runs apart, by the steps of the rows that have each name."""
    if len(steps_of) < 2 or min(map(len, steps_of.values())) < _FEWEST_ROWS or are_slices([*steps_of]):
        return False
    told = Counter(step for steps in steps_of.values() for step in {*steps})
    _, *shorter = sorted(steps_of.values(), key=len, reverse=True)
    return all(sum(told[step] > 1 for step in steps) >= SHARED * len(steps) for steps in shorter)


def are_slices(names: Sequence[str]) -> bool:
    """Whether names are of slices of one run: some tell a split and no more is different, or one is of the whole."""
    words = [frozenset(words_of(name)) for name in names]
    without = {said - SPLITS for said in words}
    by_split = any(said & SPLITS for said in words) and len(without) < len(words)
    return by_split or any(said and said <= TOTALS for said in words)


def words_of(name: str) -> list[str]:
    """The words of a name, in small letters."""
    return re.findall(r"[^\W_]+", name.lower())


def _learns(reading: Reading) -> bool:
    """Whether a run may be of what is trained: not called `base`, `reference model`, or its rows tell of updates."""
    words = frozenset(words_of(reading.run))
    by_name = words.isdisjoint(_NO_LEARNERS) or not words <= _NO_LEARNERS | _OF_NO_KIND
    return by_name or any(row.get(metric) for row in reading.case.rows for metric in _OF_UPDATES)


def read_each(runs: Sequence[str], read: Callable[[int], Reading], of_file: Sequence[str] = ()) -> Reading:
    """The readings of a file's runs as one: the first with the others behind it, notes on those that are not there.

    read: the reading of the run at a place; of_file: notes on the whole file. Raises NoMetricError where no run has a
    metric, and what `read` raises else.
    """
    notes = list(of_file)
    if len(runs) == 1:
        only = read(0)
        return replace(only, notes=(*only.notes, *notes))
    found: list[Reading] = []
    notes += [f"it has {len(runs)} runs: the first {MOST_RUNS} are read"] if len(runs) > MOST_RUNS else []
    names = _short(runs[:MOST_RUNS])
    unknown: list[str] = []
    for place, name in enumerate(names):
        try:
            reading = read(place)
        except NoMetricError:
            if place == len(names) - 1 and not found:
                raise
            unknown.append(f"{name} is left out: no metric of it is known")
            continue
        found.append(replace(reading, run=name, source=f"{reading.source} ({name})"))
    trained = [one for one in found if _learns(one)] or found
    kept = {one.run for one in trained}
    notes += [f"{one.run} is left out: by its name it is not trained" for one in found if one.run not in kept]
    notes += unknown
    first, *further = [replace(one, notes=(*one.notes, *notes)) for one in trained]
    return replace(first, further=tuple(further))


def _short(names: Sequence[str]) -> list[str]:
    """The names on one line each, cut where they are long, and numbered where they are alike then."""
    short = [" ".join(name.split()) or "without a name" for name in names]
    short = [name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…" for name in short]
    twice = {name for name, times in Counter(short).items() if times > 1}
    named: list[str] = []
    for name in short:
        numbered = (f"{name} #{number}" for number in count(1))
        free = (one for one in ([] if name in twice else [name]) if one not in named)
        named.append(next(free, None) or next(one for one in numbered if one not in named and one not in short))
    return named
