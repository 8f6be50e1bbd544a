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
from grpoctl.diagnose.readers.base import Asked, Read
from grpoctl.diagnose.readers.notices import Notices
from grpoctl.diagnose.readers.text import is_text, text_lines
from grpoctl.diagnose.readers.trainer_log import Entry, Known, case_of_entries, is_entry, number

_DICTIONARY = re.compile(r"\{\s*['\"][^{}]{1,20000}\}")
_NO_NUMBER = re.compile(r"(?<=[:\s])-?(?:nan|inf|NaN|Infinity)(?=\s*[,}])")
_BAR = re.compile(r"\b(\d{1,9})/(\d{1,9}) \[\d")  # tqdm: 12/100 [00:31<03:50
_SUMMARY = "train_runtime"
_COUNTERS = ("step", "num_tokens")  # no two steps of a run have the same; `epoch` is rounded
_TIMED = re.compile(r"step_time|profiling/.+|.+_runtime|.+_per_second")
_ENOUGH = 3  # different dictionaries in a row, before copies of them are taken for copies
_LOOKED_AT = 200_000  # lines in which the first dictionary is looked for


class _Seen(NamedTuple):
    """A dictionary of the log: its line, its metrics, and the step the progress bar before it stood at."""

    line: int
    cells: dict[str, float | None]
    bar: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Scanned:
    """A whole log: what it has."""

    seen: list[_Seen]
    notices: tuple[Notice, ...]
    total: int | None  # steps, by the progress bar


class _Console:
    """A text log with a trainer's dictionaries in it."""

    name = "console"
    looks_for = "a text log, plain or .gz, with lines like {'loss': 0.0, 'grad_norm': 1.2, 'reward': 0.5}"

    def knows(self, asked: Asked) -> bool:
        """By its first dictionary with a metric that we know."""
        if asked.path is None or not asked.path.is_file() or not is_text(asked.path):
            return False
        lines = (line for line, _ in zip(text_lines(asked.path), range(_LOOKED_AT), strict=False))
        return any(next(_dictionaries(line.text), None) is not None for line in lines)

    def read(self, asked: Asked) -> Read:
        """Rows from the dictionaries, numbered by the progress bar where one fits, else by their order."""
        assert asked.path is not None  # knows() was asked
        notes: list[str] = []
        scanned = _scan(asked.path, notes)
        alone = _of_one_process(scanned.seen)
        seen, copies = _once(alone)
        if copies > 1:
            notes.append(f"each dictionary is there {copies} times (several processes print): counted once")
        elif lost := len(scanned.seen) - len(alone):
            notes.append(f"{lost} dictionaries repeat a step exactly (several processes print): counted once")
        entries, how = _numbered(seen)
        if not entries:
            raise SpecError("has no dictionary with a training step", file=asked.path)
        settings: dict[str, Any] = {"max_steps": scanned.total} if scanned.total else {}
        case, more = case_of_entries(entries, Known(settings=settings, notices=scanned.notices))
        extra = {"dictionaries": float(len(scanned.seen))}
        return Read(case=case, kind=self.name, source=str(asked.path), notes=(how, *more, *notes), extra=extra)


READER = _Console()


def _scan(path: Path, notes: list[str]) -> _Scanned:
    """All of the log, in one pass."""
    seen: list[_Seen] = []
    notices = Notices()
    bar, total = None, None
    for line in text_lines(path, notes):
        for part in line.text.split("\r"):
            begun = 0
            for end, cells in _dictionaries(part):
                bar, total = _bar(part[begun:end], bar, total)
                seen.append(_Seen(line.number, cells, bar))
                begun = end
            bar, total = _bar(part[begun:], bar, total)
            notices.look(part, line.number, bar)
    return _Scanned(seen=seen, notices=notices.all(), total=total)


def _bar(text: str, step: int | None, total: int | None) -> tuple[int | None, int | None]:
    """Where the last progress bar in the text stands, and its end; as before where there is none.

    Only the longest bar counts: loading a model has bars of its own.
    """
    for found in _BAR.finditer(text) if "/" in text else ():
        if total is None or int(found[2]) >= total:
            step, total = int(found[1]), int(found[2])
    return step, total


def _dictionaries(text: str) -> Iterator[tuple[int, dict[str, float | None]]]:
    """(end in the text, metrics) of every dictionary that a trainer logs."""
    for found in _DICTIONARY.finditer(text) if "}" in text else ():
        logged = _value(found[0]) or {}
        cells = {name: number(value) for name, value in logged.items() if _is_cell(value)}
        if is_entry(cells):
            yield found.end(), cells


def _is_cell(value: object) -> bool:
    """Whether it is a number, or none that was measured: `null` and None say that it was not."""
    return number(value) is not None


def _value(text: str) -> dict[str, Any] | None:
    """The dictionary that the text is; None for anything else."""
    finite = _NO_NUMBER.sub("'nan'", text)
    try:
        found = ast.literal_eval(finite)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            return None
    return found if isinstance(found, dict) and all(isinstance(name, str) for name in found) else None


def _of_one_process(seen: Sequence[_Seen]) -> list[_Seen]:
    """The dictionaries without exact repeats of one that counts its steps or tokens, wherever they stand.

    Processes print when they come to it, so the copies need not stand together. How long it took is each one's own.
    """
    found: dict[frozenset[tuple[str, str]], _Seen] = {}
    for place, one in enumerate(seen):
        same = {name: repr(value) for name, value in one.cells.items() if not _TIMED.fullmatch(name)}
        counted = any(one.cells.get(name) is not None for name in _COUNTERS)
        found.setdefault(frozenset((same if counted else {**same, "": str(place)}).items()), one)
    return list(found.values())


def _once(seen: Sequence[_Seen]) -> tuple[list[_Seen], int]:
    """The dictionaries without the copies of other processes, where each of them comes so many times; and how many."""
    together = [list(group) for _, group in groupby(seen, key=lambda one: one.cells)]
    copies = math.gcd(*map(len, together)) if len(together) >= _ENOUGH else 1
    return [one for group in together for one in group[::copies]], copies


def _numbered(seen: Sequence[_Seen]) -> tuple[list[Entry], str]:
    """The entries with their steps, and how they were numbered."""
    training = [one for one in seen if not _is_evaluation(one)]
    own = [one.cells.get("step") for one in training]
    if training and all(step is not None for step in own):
        steps, how = [int(step or 0) for step in own], "steps are the log's own"
    else:
        bars = [one.bar for one in training]
        fits = None not in bars and all((a or 0) < (b or 0) for a, b in pairwise(bars))
        steps = [bar or 0 for bar in bars] if fits else list(range(1, len(training) + 1))
        how = "steps are the progress bar's" if fits else "the log has no step numbers: a row is counted as one step"
    place = {id(one): step for one, step in zip(training, steps, strict=True)}
    entries, now = [], 0
    for one in seen:
        now = place.get(id(one), now)  # an evaluation stands behind the step it was made after
        entries.append(Entry(step=now, cells=one.cells))
    return entries, how


def _is_evaluation(one: _Seen) -> bool:
    return _SUMMARY in one.cells or any(name.startswith("eval_") for name in one.cells)
