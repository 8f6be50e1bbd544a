"""A JSON file of metrics -> a case: a list of rows, columns as lists, or one row of aggregates (a summary).

What is not here: JSON lines (console), runs of ours (run_dir), trainer_state.json.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from core.errors import GrpoError
from grpoctl.diagnose.readers.attempts import newest_attempt
from grpoctl.diagnose.readers.base import Reading, Source
from grpoctl.diagnose.readers.log_settings import stated_settings
from grpoctl.diagnose.readers.metric_names import ONE_VALUE, STEPS, name_of, run_named
from grpoctl.diagnose.readers.several_runs import MOST_RUNS, NoMetricError, are_runs, are_slices, read_each
from grpoctl.diagnose.readers.text import head, unpacked
from grpoctl.diagnose.readers.trainer_log import Entry, Known, case_of_entries, flat_numbers, is_entry, number

_LARGEST = 1 << 28
_ONE_END = re.compile(  # first_step_kl, final_reward; reward_before, reward_after
    r"(?:(?P<first>first|initial|start|pre)|last|final|end|post)_(?:step_)?(?P<behind>\w+)"
    r"|(?P<before>\w+?)_(?:(?P<earlier>before|start|first|initial)|after|end|last|final)",
    re.IGNORECASE,
)
_SET = {"learning_rate", "beta", "completions/length", "completions/longest", "completions/shortest"}  # by a schedule
_PARTS = frozenset({  # words of what is a part of a run, or told twice
    "epoch", "epochs", "phase", "stage", "episode", "episodes", "sample", "samples", "rollout", "rollouts", "rank",
    "layer", "smoothed", "raw", "moving", "average", "best", "last", "first", "actor", "critic", "history", "domain",
    "ood", "step", "steps", "trajectories", "trajectory",
})  # fmt: skip
_CURVES = (("x", "step", "steps"), ("y", "value", "values"))  # of a curve's two lists
_SETTINGS = ("config", "args", "arguments", "hyperparameters", "hparams", "settings", "training_args")


class _JsonDocument:
    """One JSON value."""

    name = "json"
    looks_for = "rows, columns or aggregates"

    def knows(self, source: Source) -> bool:
        """By its content: one JSON value with a metric that we know."""
        if source.path is None or not source.path.is_file() or not _may_be_one_value(head(source.path)):
            return False
        with suppress(GrpoError, ValueError, RecursionError):
            return bool(_entries(_runs(_document(source.path))[0][1])[0])
        return False

    def read(self, source: Source) -> Reading:
        """Rows by step. Raises SpecError where the file has no metric."""
        path = source.path
        assert path is not None  # knows() came first
        document = _document(path)
        runs = _runs(document)
        shared = _settings(document)
        return read_each([run for run, _ in runs], lambda at: self._of_run(path, runs[at][1], shared))

    def _of_run(self, path: Path, document: Any, shared: Mapping[str, Any]) -> Reading:
        """What the file says of one run."""
        entries, attempts = _entries(document)
        if not entries:
            raise NoMetricError("has no metric of training", file=path)
        case, notes = case_of_entries(entries, Known(settings={**shared, **_settings(document)}))
        if len(entries) == 1:
            notes.append("one row of numbers: an excerpt, or aggregates of a run")
        return Reading(case=case, kind=self.name, source=str(path), notes=(*notes, *attempts))


READER = _JsonDocument()


def _may_be_one_value(start: bytes) -> bool:
    """Whether a file that begins so may be one JSON value: JSON lines are one on each line, and may be a gigabyte."""
    first, end, rest = start.lstrip().partition(b"\n")
    if first[:1] not in (b"{", b"["):
        return False
    if not end or not rest.strip():
        return True
    with suppress(ValueError, RecursionError):
        json.loads(first)
        return False
    return True


def _document(path: Path) -> Any:
    return json.loads(unpacked(path, _LARGEST))


def _settings(document: Any) -> dict[str, Any]:
    """The settings that a document states under a name for them."""
    if not isinstance(document, dict):
        return {}
    stated = [stated_settings(document[name]) for name in _SETTINGS if isinstance(document.get(name), dict)]
    return {name: value for part in stated for name, value in part.items()}


def _runs(document: Any) -> list[tuple[str, Any]]:
    """(name, what is told of it) of each run of a document; the document itself, of a run without a name, where it
    is of one.

    Several runs: parts of it, or rows with a column that names them, that tell a metric of the same steps.
    """
    for parts in (_named_parts(document), _listed_parts(document), _rows_by_run(document)):
        told = [(name, part, _told(part)) for name, part in parts]
        told = [one for one in told if len(one[2].steps) > 1]
        steps = {f"{place} {one[0]}": one[2].steps for place, one in enumerate(told)}
        if (
            not are_slices([one[0] for one in told])
            and are_runs(steps)
            and all(_are_alike(one[2].metrics, told[0][2].metrics) for one in told)
        ):
            return [(name, part) for name, part, _ in told]
    return [("", document)]


def _are_alike(metrics: set[str], others: set[str]) -> bool:
    """Whether two parts tell mostly the same metrics."""
    return 2 * len(metrics & others) > len(metrics | others)


def _named_parts(document: Any) -> list[tuple[str, Any]]:
    """The document's parts with their names, at the top or below its only part that has some; no splits of one run."""
    if not isinstance(document, dict):
        return []
    parts = {name: part for name, part in document.items() if name not in _SETTINGS and isinstance(part, dict | list)}
    if len(parts) == 1:
        return _named_parts(next(iter(parts.values())))
    is_part = any(not _PARTS.isdisjoint(re.findall(r"[^\W\d_]+", name.lower())) for name in parts)
    return [] if is_part else list(parts.items())


def _listed_parts(document: Any) -> list[tuple[str, Any]]:
    """The parts of a list of runs, each with its name and its history: at the top, or the document's only list."""
    if isinstance(document, dict):
        lists = [value for value in document.values() if isinstance(value, list)]
        document = lists[0] if len(lists) == 1 else []
    if not isinstance(document, list) or not all(isinstance(part, dict) for part in document[:MOST_RUNS]):
        return []
    nested = [
        part for part in document if isinstance(part, dict) and any(isinstance(v, list | dict) for v in part.values())
    ]
    named = [(run_named(part) or str(part.get("name", "")), part) for part in nested]
    return named if all(name for name, _ in named) else []


def _rows_by_run(document: Any) -> list[tuple[str, Any]]:
    """The rows of a list by the run that they name."""
    rows = document if isinstance(document, list) else []
    by_run: dict[str, list[Any]] = {}
    for row in rows:
        by_run.setdefault(run_named(row) if isinstance(row, dict) else "", []).append(row)
    return [] if "" in by_run else list(by_run.items())


class _Told(NamedTuple):
    """The steps of a part's rows, and the metrics in them."""

    steps: list[float]
    metrics: set[str]


def _told(part: Any) -> _Told:
    rows = list(_rows(part))
    steps = [next((row[name] for name in STEPS if name in row), None) for row in rows]
    metrics = {metric for name in {name for row in rows for name in row} if (metric := name_of(name)) is not None}
    return _Told([step for step in steps if step is not None], metrics - {"step"})


def _entries(document: Any) -> tuple[list[Entry], list[str]]:
    """The rows that the document has of its newest attempt, in their order, and notes; none where none has a metric."""
    rows = [{name: value for name, value in row.items() if value is not None} for row in _rows(document)]
    rows = [row for row in rows if is_entry(row)]
    stated = [next((int(row[name]) for name in STEPS if 0 <= row.get(name, -1) < math.inf), None) for row in rows]
    numbered = None not in stated
    places = stated if numbered else [row.get("epoch") for row in rows]
    kept, notes = newest_attempt(places, rows.__getitem__, "step" if numbered else "epoch")
    rows, stated = [rows[at] for at in kept], [stated[at] for at in kept]
    steps = [step for step in stated if step is not None]
    if len({*steps}) < len(rows):
        steps = list(range(1, len(rows) + 1))
    return [Entry(step=step, cells=row) for step, row in zip(steps, rows, strict=True)], notes


def _rows(document: Any) -> Iterator[dict[str, float]]:
    """Every row of the document as a flat mapping of numbers."""
    if isinstance(document, list):
        rows = [row for row in document if isinstance(row, dict)]
        yield from _of_values(rows) or (dict(flat_numbers(row)) for row in rows)
    elif isinstance(document, dict):
        lists = {name: value for name, value in document.items() if isinstance(value, list)}
        numbered = {key: value for key, value in document.items() if key.isdigit() and isinstance(value, dict)}
        if len(lists) == 1 and (told := _of_values(next(iter(lists.values())))):
            yield from told
        elif (history := _history(lists)) is not None:
            yield from (dict(flat_numbers(row)) for row in history)
        elif points := _points(document):
            yield from points
        elif columns := {name for name, value in lists.items() if len(value) > 1 and is_entry([name])}:
            yield from _transposed(lists, columns)
        elif numbered and len(numbered) == len(document):
            for key, row in sorted(numbered.items(), key=lambda item: int(item[0])):
                yield {"step": float(key), **dict(flat_numbers(row))}
        else:
            whole = dict(flat_numbers({name: value for name, value in document.items() if name not in _SETTINGS}))
            yield from _start_and_end(whole) or [whole]


def _of_values(objects: Sequence[Any]) -> list[dict[str, float]]:
    """The rows of a list with an object for each value: a metric's name, a step, the value; [] of any other list."""
    rows: dict[float, dict[str, float]] = {}
    for one in objects:
        named = {name.lower(): value for name, value in one.items()} if isinstance(one, dict) else {}
        name, step, value = (next((named[key] for key in keys if key in named), None) for keys in ONE_VALUE)
        place, told = number(step), number(value)
        if not isinstance(name, str) or any(is_entry([key]) for key in named):
            return []
        if place is not None and told is not None and is_entry([name]):
            rows.setdefault(place, {"step": place})[name] = told
    return [rows[place] for place in sorted(rows)]


def _start_and_end(numbers: Mapping[str, float]) -> list[dict[str, float]]:
    """The first and the last row of a run that is told by them alone (`first_step_kl`, `reward_before`); else [].

    A single metric that is no reward is said of many other things, too, and a configuration has rates and lengths at
    both ends. Nor are they the run where the file tells the same metric in full, or the ends of several runs.
    """
    ends: dict[str, dict[str, float]] = {"start": {}, "end": {}}
    for name, value in numbers.items():
        place, _, tail = name.rpartition("/")
        match = _ONE_END.fullmatch(tail)
        if match is None:
            continue
        plain = match["behind"] or match["before"]
        metric = next((name for name in (plain, f"{place}/{plain}") if is_entry([name])), None)
        if metric is not None:
            end = ends["start" if match["first"] or match["earlier"] else "end"]
            if metric in end and end[metric] != value:
                return []
            end[metric] = value
    metrics = {name_of(name) for row in ends.values() for name in row}
    in_full = {name_of(name) for name in numbers if _ONE_END.fullmatch(name.rpartition("/")[2]) is None}
    told = len(metrics - _SET) > 1 or "reward/mean" in metrics
    return [row for row in ends.values() if row] if told and in_full.isdisjoint(metrics - _SET) else []


def _points(document: Mapping[str, Any]) -> list[dict[str, float]]:
    """The rows of metrics that are told one by one, `{NAME: [{"step": 1, "value": 0.5}, ...]}`, also under one key.

    Or `{NAME: {"x": [1, ...], "y": [0.5, ...]}}`.
    """
    rows: dict[float, dict[str, float]] = {}
    parts = (("", document), *((f"{key}/", part) for key, part in document.items() if isinstance(part, dict)))
    curves: dict[str | None, tuple[str, list[tuple[float, float]]]] = {}
    for place, part in parts:
        for plain, points in part.items():
            placed = f"{place}{plain}"
            name = placed if (name_of(placed) or "").startswith("eval/") else plain
            if is_entry([name]) and (curve := list(_curve(points))):
                curves.setdefault(name_of(name), (name, curve))  # of several runs in a file the first
    for name, curve in curves.values():
        for step, value in curve:
            rows.setdefault(step, {"step": step})[name] = value
    return [rows[step] for step in sorted(rows)]


def _curve(points: object) -> Iterator[tuple[float, float]]:
    """(step, value) of a list of points, or of two lists; nothing of anything else."""
    if isinstance(points, dict):
        x, y = (next((points[name] for name in names if name in points), None) for names in _CURVES)
        if isinstance(x, list) and isinstance(y, list) and len(x) == len(y):
            points = [{"step": step, "value": value} for step, value in zip(x, y, strict=True)]
    told = [point for point in points if isinstance(point, dict)] if isinstance(points, list) else []
    for point in told:
        step, value = number(point.get("step")), number(point.get("value"))
        if step is not None and value is not None:
            yield step, value


def _history(lists: Mapping[str, list[Any]]) -> list[dict[str, Any]] | None:
    """The list of rows among a document's lists; None where none has a metric."""
    for value in lists.values():
        if (
            value
            and all(isinstance(row, dict) for row in value)
            and any(is_entry(dict(flat_numbers(row))) for row in value)
        ):
            return value
    return None


def _transposed(lists: Mapping[str, list[Any]], columns: set[str]) -> Iterator[dict[str, float]]:
    """The rows of lists that are columns; one that numbers them counts where it is as long as they are."""
    longest = max(len(lists[name]) for name in columns)
    taken = columns | {name for name in lists if name in STEPS and len(lists[name]) == longest}
    for index in range(longest):
        cells = {name: number(lists[name][index]) for name in taken if index < len(lists[name])}
        yield {name: value for name, value in cells.items() if value is not None}
