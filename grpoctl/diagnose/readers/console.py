"""What a trainer printed: dictionaries of metrics in a text log, among progress bars and everything else.

`{'loss': 0.0, 'grad_norm': 1.2, 'reward': 0.5}` (Hugging Face, TRL), the same with values as text (transformers 5), and
JSON lines. A dictionary is read with ast.literal_eval or json, never run. What is not here: rows (trainer_log).
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from core.errors import SpecError
from core.health.case import Notice
from grpoctl.diagnose.readers.base import Reading, Source
from grpoctl.diagnose.readers.text import Notices, is_text, text_lines
from grpoctl.diagnose.readers.trainer_log import Entry, Known, case_of_entries, is_entry, number

_DICTIONARY = re.compile(r"\{\s*['\"][^{}]{1,20000}\}")
_NO_NUMBER = re.compile(r"(?<=[:\s])-?(?:nan|inf|NaN|Infinity)(?=\s*[,}])")
_BAR = re.compile(r"\b(\d{1,9})/(\d{1,9}) \[\d")  # tqdm: 12/100 [00:31<03:50
_SUMMARY = "train_runtime"
_COUNTERS = ("step", "num_tokens")  # no two steps of a run have the same; `epoch` is rounded
_TIMED = re.compile(r"step_time|profiling/.+|.+_runtime|.+_per_second")
_ENOUGH = 3  # different dictionaries in a row, before copies of them are taken for copies
_LOOKED_AT = 200_000  # lines in which the first dictionary is looked for


class _Logged(NamedTuple):
    """A dictionary of the log: its line, its metrics, and the step the progress bar before it stood at."""

    line: int
    cells: dict[str, float | None]
    bar: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Log:
    """A whole log: what it has."""

    dictionaries: list[_Logged]
    notices: tuple[Notice, ...]
    total: int | None  # steps, by the progress bar


class _Console:
    """A text log with a trainer's dictionaries in it."""

    name = "console"
    looks_for = "a text log, plain or .gz, with lines like {'loss': 0.0, 'grad_norm': 1.2, 'reward': 0.5}"

    def knows(self, source: Source) -> bool:
        """By its first dictionary with a metric that we know."""
        if source.path is None or not source.path.is_file() or not is_text(source.path):
            return False
        lines = (line for line, _ in zip(text_lines(source.path), range(_LOOKED_AT), strict=False))
        return any(next(_dictionaries(line.text), None) is not None for line in lines)

    def read(self, source: Source) -> Reading:
        """Rows from the dictionaries, numbered by the progress bar where one fits, else by their order."""
        assert source.path is not None  # knows() came first
        notes: list[str] = []
        log = _scan(source.path, notes)
        of_one_process = _of_one_process(log.dictionaries)
        logged, copies = _without_copies(of_one_process)
        if copies > 1:
            notes.append(f"each dictionary is there {copies} times (several processes print): counted once")
        elif lost := len(log.dictionaries) - len(of_one_process):
            notes.append(f"{lost} dictionaries repeat a step exactly (several processes print): counted once")
        entries, how = _numbered(logged)
        if not entries:
            raise SpecError("has no dictionary with a training step", file=source.path)
        settings: dict[str, Any] = {"max_steps": log.total} if log.total else {}
        case, more = case_of_entries(entries, Known(settings=settings, notices=log.notices))
        extra = {"dictionaries": float(len(log.dictionaries))}
        return Reading(case=case, kind=self.name, source=str(source.path), notes=(how, *more, *notes), extra=extra)


READER = _Console()


def _scan(path: Path, notes: list[str]) -> _Log:
    """All of the log, in one pass."""
    dictionaries: list[_Logged] = []
    notices = Notices()
    bar, total = None, None
    for line in text_lines(path, notes):
        for part in line.text.split("\r"):
            begun = 0
            for end, cells in _dictionaries(part):
                bar, total = _bar(part[begun:end], bar, total)
                dictionaries.append(_Logged(line.number, cells, bar))
                begun = end
            bar, total = _bar(part[begun:], bar, total)
            notices.look(part, line.number, bar)
    return _Log(dictionaries=dictionaries, notices=notices.all(), total=total)


def _bar(text: str, step: int | None, total: int | None) -> tuple[int | None, int | None]:
    """Where the last progress bar in the text stands, and its end; as before where there is none.

    Only the longest bar counts: loading a model has bars of its own.
    """
    for match in _BAR.finditer(text) if "/" in text else ():
        if total is None or int(match[2]) >= total:
            step, total = int(match[1]), int(match[2])
    return step, total


def _dictionaries(text: str) -> Iterator[tuple[int, dict[str, float | None]]]:
    """(end in the text, metrics) of every dictionary that a trainer logs."""
    for match in _DICTIONARY.finditer(text) if "}" in text else ():
        logged = _value(match[0]) or {}
        # `null` and None say that nothing was measured
        cells = {name: number(value) for name, value in logged.items() if number(value) is not None}
        if is_entry(cells):
            yield match.end(), cells


def _value(text: str) -> dict[str, Any] | None:
    """The dictionary that the text is; None for anything else."""
    finite = _NO_NUMBER.sub("'nan'", text)
    try:
        value = ast.literal_eval(finite)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, dict) and all(isinstance(name, str) for name in value) else None


def _of_one_process(logged: Sequence[_Logged]) -> list[_Logged]:
    """The dictionaries without exact repeats of one that counts its steps or tokens, wherever they stand.

    Processes print when they come to it, so the copies need not stand together. How long it took is each one's own.
    """
    distinct: dict[frozenset[tuple[str, str]], _Logged] = {}
    for place, entry in enumerate(logged):
        same = {name: repr(value) for name, value in entry.cells.items() if not _TIMED.fullmatch(name)}
        counted = any(entry.cells.get(name) is not None for name in _COUNTERS)
        distinct.setdefault(frozenset((same if counted else {**same, "": str(place)}).items()), entry)
    return list(distinct.values())


def _without_copies(logged: Sequence[_Logged]) -> tuple[list[_Logged], int]:
    """The dictionaries without the copies of other processes, where each of them comes so many times; and how many."""
    runs = [list(group) for _, group in groupby(logged, key=lambda entry: entry.cells)]
    copies = math.gcd(*map(len, runs)) if len(runs) >= _ENOUGH else 1
    return [entry for run in runs for entry in run[::copies]], copies


def _numbered(logged: Sequence[_Logged]) -> tuple[list[Entry], str]:
    """The entries with their steps, and how they were numbered."""

    def is_evaluation(entry: _Logged) -> bool:
        return _SUMMARY in entry.cells or any(name.startswith("eval_") for name in entry.cells)

    training = [entry for entry in logged if not is_evaluation(entry)]
    own = [entry.cells.get("step") for entry in training]
    if training and all(step is not None for step in own):
        steps, how = [int(step or 0) for step in own], "steps are the log's own"
    else:
        bars = [entry.bar for entry in training]
        fits = None not in bars and all((a or 0) < (b or 0) for a, b in pairwise(bars))
        steps = [bar or 0 for bar in bars] if fits else list(range(1, len(training) + 1))
        how = "steps are the progress bar's" if fits else "the log has no step numbers: a row is counted as one step"
    number_of = {id(entry): step for entry, step in zip(training, steps, strict=True)}
    entries, step = [], 0
    for entry in logged:
        step = number_of.get(id(entry), step)  # an evaluation stands behind the step it was made after
        entries.append(Entry(step=step, cells=entry.cells))
    return entries, how
