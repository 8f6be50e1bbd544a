"""A JSON, YAML or TOML file of metrics -> a case: a list of rows, columns as lists, rows by the name of their step, or
one row of aggregates (a summary).

What is not here: how such a file is parsed (whole_documents), JSON lines with a row each (console), runs of ours
(run_dir), trainer_state.json.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from core.errors import GrpoError
from grpoctl.diagnose.readers.attempts import newest_attempt
from grpoctl.diagnose.readers.base import Reading, Source
from grpoctl.diagnose.readers.log_settings import plain_settings, stated_settings
from grpoctl.diagnose.readers.metric_names import HELD_OUT, ONE_VALUE, RUNS, STEPS, name_of, run_named
from grpoctl.diagnose.readers.setting_names import names_a_setting
from grpoctl.diagnose.readers.several_runs import MOST_RUNS, NoMetricError, are_runs, are_slices, read_each, words_of
from grpoctl.diagnose.readers.trainer_log import (
    Entry,
    Known,
    case_of_entries,
    evaluated,
    flat_numbers,
    is_entry,
    is_held_out,
    number,
)
from grpoctl.diagnose.readers.whole_documents import JSON, document_of, format_of, may_be_document

_AN_END = re.compile(  # first_200, last_50_steps
    r"(?:first|start|initial|early)(?:_\d{1,6})?(?:_(?:steps|updates|groups|rows))?"
    r"|(?P<last>last|end|final|late)(?:_\d{1,6})?(?:_(?:steps|updates|groups|rows))?",
    re.IGNORECASE,
)
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
_SETTINGS = (
    "config", "args", "arguments", "hyperparameters", "hparams", "hyperparams", "settings", "training_args", "params",
    "cfg",
)  # fmt: skip
_OF_PARTS = ("trainer", "orchestrator")  # of a run, whose settings stand beside metrics (prime-rl)
_OF_STEP = re.compile(  # what an object of one step's metrics is called: 10, step_10, epoch 3
    r"(?:(?P<word>(?:global_|train_|training_)?step|iteration|iter|update|epoch|checkpoint|ckpt)s?[ _-]?)?"
    r"(?P<number>\d{1,9})",
    re.IGNORECASE,
)
_OF_STEPS = re.compile(r"step|epoch|iter|update|checkpoint|histor|log|metric|train", re.IGNORECASE)  # what holds these
_TEXTS = ("completion", "response", "answer", "output", "generation", "prompt", "question")  # of a single completion
_ASCENDING = ("epoch", "episode", "episodes")  # of rows that no step numbers
_ALIKE = 0.9  # of a log's steps have as many rows, where these are parts of a step
_RUN = "run"
_STATED = frozenset({None, "step", "learning_rate", "beta", "temperature"})  # what a configuration has, too
_EXTREMES: dict[str, Callable[[list[float]], float]] = {
    "reward/max": max, "completions/longest": max, "reward/min": min, "completions/shortest": min,
}  # fmt: skip
_OF_MICRO_BATCHES = "{} rows a step (of micro-batches?) are read as their mean"


class _JsonDocument:
    """One JSON value, or what a YAML or TOML file says in its own way."""

    name = "json"
    looks_for = "rows, columns or aggregates"

    def knows(self, source: Source) -> bool:
        """By its content: one value with a metric that we know; of YAML and TOML, mostly settings, a course."""
        path = source.path
        if path is None or not path.is_file() or not may_be_document(path):
            return False
        with suppress(GrpoError, ValueError, RecursionError):
            entries, _ = _entries(_runs(document_of(path))[0][1])
            return bool(entries) and (format_of(path) == JSON or _is_course(entries))
        return False

    def read(self, source: Source) -> Reading:
        """Rows by step. Raises SpecError where the file has no metric."""
        path = source.path
        assert path is not None  # knows() came first
        document = document_of(path)
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
        return Reading(case=case, kind=format_of(path), source=str(path), notes=(*notes, *attempts))


READER = _JsonDocument()


def _is_course(entries: Sequence[Entry]) -> bool:
    """Whether entries tell of several steps, or of a reward."""
    told = [{name_of(name) for name in entry.cells} for entry in entries]
    return any("reward/mean" in names for names in told) or sum(bool(names - _STATED) for names in told) > 1


def _settings(document: Any) -> dict[str, Any]:
    """The settings that a document states under a name for them."""
    if not isinstance(document, dict):
        return {}
    stated = [stated_settings(document[name]) for name in _SETTINGS if isinstance(document.get(name), dict)]
    beside = {name: document[name] for name in _OF_PARTS if isinstance(document.get(name), dict)}
    rows = any(isinstance(value, list) for value in document.values())
    plain = {name: told for name, value in document.items() if rows and (told := number(value)) is not None}
    plain = {name: int(value) if value.is_integer() else value for name, value in plain.items()}
    return {
        name: value
        for part in (plain_settings(plain), stated_settings(beside), *stated)
        for name, value in part.items()
    }


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
    if len(steps) == len(rows):
        steps, rows, parts = _joined(steps, rows, document)
        notes = [*notes, *parts]
    if len({*steps}) < len(rows):
        steps = list(range(1, len(rows) + 1))
    return [Entry(step=step, cells=row) for step, row in zip(steps, rows, strict=True)], notes


def _joined(
    steps: list[int], rows: list[dict[str, float]], document: Any
) -> tuple[list[int], list[dict[str, float]], list[str]]:
    """One row a step, the mean of those that follow each other, and a note where they tell the same metrics; what was
    given where rows of a step stand apart, are of several runs, or one step has more of them than others.
    """
    by_step = [
        [row for _, row in group] for _, group in groupby(zip(steps, rows, strict=True), key=lambda pair: pair[0])
    ]
    if len(by_step) == len(rows) or len(by_step) > len({*steps}):
        return steps, rows, []
    told_again = [len({*told}) < len(told) for group in by_step for told in [[*_metrics(group)]]]
    size, times = Counter(map(len, by_step)).most_common(1)[0]
    if any(told_again) and (size == 1 or times < _ALIKE * len(by_step) or _are_of_arms(_listed_rows(document))):
        return steps, rows, []
    notes = [_OF_MICRO_BATCHES.format(size)] if any(told_again) else []
    return list(dict.fromkeys(steps)), [_mean(group) for group in by_step], notes


def _listed_rows(document: Any) -> Sequence[Any]:
    """The rows of a document that lists them, as they stand there."""
    if isinstance(document, dict):
        return next((rows for name, rows in _listed(document).items() if not _is_of_evaluation(name)), ())
    return document if isinstance(document, list) else ()


def _are_of_arms(rows: Sequence[Any]) -> bool:
    """Whether rows of a step are of different runs, or arms of one: they differ in a text or in a setting.

    What never comes again at another step tells the rows apart, and no runs: a time, a message.
    """
    told: dict[str, dict[float | None, set[object]]] = {}  # column -> step -> what it says there
    for row in rows:
        for name, value in _marks(row) if isinstance(row, dict) else ():
            told.setdefault(name, {}).setdefault(_step(row), set()).add(value)
    for by_step in told.values():
        times = Counter(value for values in by_step.values() for value in values)
        recurs = len(by_step) == 1 or max(times.values()) > 1
        if recurs and any(len(values) > 1 for values in by_step.values()):
            return True
    return False


def _marks(row: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """(column, value) of what may say of which run a row is: texts but those of completions, settings, yes and no."""
    for name, value in row.items():
        is_number = number(value) is not None
        if name in _SETTINGS and isinstance(value, dict):
            yield name, repr(value)
        elif isinstance(value, bool) or (isinstance(value, str) and not is_number and name not in _TEXTS):
            yield name, value
        elif is_number and _is_set(name):
            yield name, number(value)


def _is_set(name: str) -> bool:
    """Whether a column of numbers is of what a run was started with: `seed`, `temperature`, `lr_run`."""
    return name_of(name) in _STATED and (names_a_setting(name) or not RUNS.isdisjoint(words_of(name)))


def _metrics(group: Sequence[Mapping[str, float]]) -> Iterator[str]:
    """The metrics of some rows, each as often as it is told."""
    for row in group:
        yield from (name for name in row if name not in STEPS and is_entry([name]))


def _mean(group: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The rows of a step as one: of a number the mean of those that have it, of the least and the most these."""
    if len(group) == 1:
        return dict(group[0])
    values: dict[str, list[float]] = {}
    for row in group:
        for name, value in row.items():
            values.setdefault(name, []).append(value)
    return {name: _EXTREMES.get(name_of(name) or "", fmean)(told) for name, told in values.items()}


def _rows(document: Any) -> list[dict[str, float]]:
    """Every row of the document as a flat mapping of numbers."""
    if isinstance(document, list):
        rows = [row for row in document if isinstance(row, dict)]
        return _of_values(rows) or [dict(flat_numbers(row)) for row in rows]
    if not isinstance(document, dict):
        return []
    for form in (_only_values, _history, _points, _columns, _numbered, _two_ends):
        if rows := form(document):
            return rows
    whole = dict(flat_numbers({name: value for name, value in document.items() if name not in _SETTINGS}))
    return _start_and_end(whole) or [whole]


def _lists(document: Mapping[str, Any]) -> dict[str, list[Any]]:
    return {name: value for name, value in document.items() if isinstance(value, list)}


def _parts(document: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """The document and the objects in it, with their names; no settings."""
    inside = [(name, part) for name, part in document.items() if isinstance(part, dict) and name not in _SETTINGS]
    return [("", document), *inside]


def _only_values(document: Mapping[str, Any]) -> list[dict[str, float]]:
    """The rows of the document's only list, where that has an object for each value."""
    lists = list(_lists(document).values())
    return _of_values(lists[0]) if len(lists) == 1 else []


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
            called = evaluated(name) if is_held_out(named) else name
            rows.setdefault(place, {"step": place})[called] = told
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


def _history(document: Mapping[str, Any]) -> list[dict[str, float]]:
    """The first list of rows with a metric, and the rows of lists that are named as evaluations, by their steps."""
    listed = _listed(document)
    trained = next((name for name in listed if not _is_of_evaluation(name)), "")
    rows = [dict(flat_numbers(row)) for row in listed.get(trained, ())]
    for name, value in listed.items():
        if _is_of_evaluation(name):
            told = [dict(flat_numbers(row)) for row in value]
            rows += [{evaluated(name): number for name, number in row.items()} for row in told]
    return _in_order(rows)


def _listed(document: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The document's lists of rows with metrics, by their names."""
    return {name: value for name, value in _lists(document).items() if _is_listed(value)}


def _in_order(rows: list[dict[str, float]]) -> list[dict[str, float]]:
    """The rows by their steps, where all have one."""
    return rows if None in map(_step, rows) else sorted(rows, key=lambda row: _step(row) or 0.0)


def _is_listed(rows: Sequence[Any]) -> bool:
    """Whether a list has rows with metrics, and no single completions."""
    if not rows or not all(isinstance(row, dict) for row in rows):
        return False
    samples = all(any(isinstance(row.get(name), str) for name in _TEXTS) and _step(row) is None for row in rows)
    samples = samples and not any(_rises([number(row.get(name)) for row in rows]) for name in _ASCENDING)
    return not samples and any(is_entry(dict(flat_numbers(row))) for row in rows)


def _rises(places: Sequence[float | None]) -> bool:
    """Whether places go up from row to row, or stay for one: completions of an epoch are many."""
    known = [place for place in places if place is not None]
    return len(known) == len(places) and known == sorted(known) and len(known) <= 2 * len({*known}) > 2


def _step(row: Mapping[str, Any]) -> float | None:
    return next((known for name in STEPS if (known := number(row.get(name))) is not None), None)


def _is_of_evaluation(name: str) -> bool:
    """Whether a part of a document is called an evaluation: `eval`, `val_history`; no `test_run`."""
    words = re.findall(r"[a-z]+", name.lower())
    return bool(words) and words[0] in HELD_OUT and _RUN not in words


def _columns(document: Mapping[str, Any]) -> list[dict[str, float]]:
    """The rows of lists that are columns, of the document or of the first object in it that has some."""
    for called, part in _parts(document):
        lists = _lists(part)
        columns = [name for name, value in lists.items() if len(value) > 1 and is_entry([name])]
        of_settings = bool(called) and {name_of(name) for name in columns} <= _STATED
        if columns and not of_settings and not _is_of_evaluation(called):
            return _in_order([*_transposed(lists, columns), *_evaluations(lists, columns)])
    return []


def _numbered(document: Mapping[str, Any]) -> list[dict[str, float]]:
    """The rows of objects that are called by their step or epoch: `{"10": {...}}`, `{"epoch_1": {...}}`."""
    for called, part in _parts(document):
        named = {key: match for key in part if (match := _OF_STEP.fullmatch(key)) and isinstance(part[key], dict)}
        words = {(match["word"] or "").lower() for match in named.values()}
        if len(words) != 1 or _is_of_evaluation(called) or (words == {""} and not _is_all(called, part, named)):
            continue
        place = "epoch" if "epoch" in f"{called} {words}".lower() else "step"
        rows = [{place: float(match["number"]), **dict(flat_numbers(part[key]))} for key, match in named.items()]
        if any(map(is_entry, rows)):
            return sorted(rows, key=lambda row: row[place])
    return []


def _two_ends(document: Mapping[str, Any]) -> list[dict[str, float]]:
    """The rows of an object for a run's start and one for its end: `{"first_200": {...}, "last_200": {...}}`."""
    for called, part in [*_parts(document), *(two for _, one in _parts(document)[1:] for two in _parts(one)[1:])]:
        named = {key: match for key in part if (match := _AN_END.fullmatch(key)) and isinstance(part[key], dict)}
        rows = {bool(match["last"]): dict(flat_numbers(part[key])) for key, match in named.items()}
        metrics = [{*_metrics([row])} for row in rows.values()]
        if len(named) == len(rows) == 2 and not _is_of_evaluation(called) and set.intersection(*metrics):
            return [rows[False], rows[True]]
    return []


def _is_all(called: str, part: Mapping[str, Any], numbered: Mapping[str, object]) -> bool:
    """Whether numbers are all that an object has besides settings, and it is not called something else (`seeds`)."""
    return all(key in numbered or key in _SETTINGS for key in part) and (not called or bool(_OF_STEPS.search(called)))


def _transposed(lists: Mapping[str, list[Any]], columns: Sequence[str]) -> Iterator[dict[str, float]]:
    """The rows of lists that are columns; one that numbers them counts where it is as long as they are.

    Columns of half as many values as the reward, or twice as many, are of other rows.
    """
    whole = max((len(lists[name]) for name in columns if name_of(name) == "reward/mean"), default=0)
    whole = whole or max(len(lists[name]) for name in columns)
    taken = [name for name in columns if whole < 2 * len(lists[name]) < 4 * whole]
    longest = max(len(lists[name]) for name in taken)
    taken += [name for name in lists if name in STEPS and name not in taken and len(lists[name]) == longest]
    for index in range(longest):
        cells = {name: number(lists[name][index]) for name in taken if index < len(lists[name])}
        yield {name: value for name, value in cells.items() if value is not None}


def _evaluations(lists: Mapping[str, list[Any]], columns: Sequence[str]) -> Iterator[dict[str, float]]:
    """The rows of shorter lists of evaluations, by a list as long as they are that numbers them (`eval_steps`)."""
    steps = next((lists[name] for name in STEPS if name in lists), [])
    places = [number(place) for place in next((lists[name] for name in lists if _numbers_evaluations(name)), [])]
    if not {*places} <= {number(step) for step in steps}:  # sets: there may be many of both
        return
    for name in columns:
        short = 2 * len(lists[name]) <= len(steps) and (name_of(name) or "").startswith("eval/")
        if short and len(places) == len(lists[name]):
            told = zip(places, map(number, lists[name]), strict=True)
            yield from ({"step": step, name: value} for step, value in told if step is not None and value is not None)


def _numbers_evaluations(name: str) -> bool:
    """Whether a list is called the steps of evaluations: `eval_iterations`, `val_steps`."""
    place = "_".join(re.findall(r"[a-z]+", name.lower())[1:]).removesuffix("s")
    return _is_of_evaluation(name) and place in {step.removesuffix("s") for step in STEPS}
