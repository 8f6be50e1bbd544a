"""Tables with a metric's name beside each step, or above the whole table: as one column for each metric, for each run.

`step | metric | run A | run B` has a row for each metric of a step, and `step | run A | run B` below the heading
`Validation accuracy` has one metric. What is not here: what a cell says (written_cells), and the course of a run in a
table of metrics (written_tables).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from grpoctl.diagnose.readers.metric_names import HELD_OUT, ONE_VALUE, STEPS
from grpoctl.diagnose.readers.written_cells import (
    LONGEST,
    METRICS,
    are_changes,
    cell_values,
    is_change,
    is_empty,
    name_in,
    numbers_rows,
    steps_in_remark,
    steps_of_label,
)

_METRIC = METRICS.union(ONE_VALUE[0]) - {"name", "key"}  # above names of metrics
_COUNTED = frozenset({  # above steps, and no parts of a task
    *STEPS, "epoch", "checkpoint", "ckpt", "updates", "步数",
})  # fmt: skip
_NO_RUN = re.compile(  # what else than runs stands beside steps
    r"%|/s\b|\b(?:ms|sec(?:onds)?|gb|mb|mem(?:ory)?|time|eta|tok(?:en)?s?|speed|throughput|cost|points?|counts?|num|prompts?|"
    r"samples?|easy|medium|hard|description|min|mean|max|std|median|avg|average|sum|train|val|valid|validation|test|eval|"
    r"overall|total|gpus?|question|expected|got|input|output|answer|threshold|target|healthy|observed|limit)\b",
    re.IGNORECASE,
)
_FEWEST = 2  # rows, or steps
_MOST_COLUMNS = 32
_SPARSE = 4  # times as many places for values as there are values
_MARKS = re.compile(r"\A[\s#>*\-\d.)]+|[\s*:：]+\Z")  # around a title
_BEHIND_METRIC = re.compile(
    r"\s*(?:\b(?:by|per|over|at|across|during)\b.{0,40}|\b(?:curves?|trajector(?:y|ies)|progress(?:ion)?|comparison|"
    r"course|history|results?|scores?)|[(（].{0,60})\Z",
    re.IGNORECASE,
)  # Reward by step, Eval accuracy trajectory


class Wide(NamedTuple):
    """A run's table with a column for each metric: the lines of its rows, and its cells, the header first."""

    lines: list[int]
    rows: list[list[str]]


def by_metric(lines: Sequence[int], rows: Sequence[Sequence[str]], is_known: Callable[[str], bool]) -> dict[str, Wide]:
    """Run -> its table, of one that names a metric in each row; {} for any other table."""
    header, *body = rows
    names = [name_in(cell) for cell in header]
    place = next((at for at, name in enumerate(names) if name.lower() in _METRIC), None)
    step = next((at for at, name in enumerate(names) if numbers_rows(name)), None)
    if place is None or step is None or len(body) < _FEWEST or len(names) > _MOST_COLUMNS:
        return {}
    values = [at for at in range(len(names)) if at not in (place, step) and _is_of_values(names[at], at, body)]
    told = [(row[step].strip(), name_in(row[place])) for row in body]
    if not values or len({*told}) < len(told) or not any(is_known(name) for _, name in told):
        return {}
    metrics = list(dict.fromkeys(name for _, name in told))
    steps = list(dict.fromkeys(label for label, _ in told))
    sparse = len(steps) * len(metrics) > _SPARSE * len(body)  # most steps lack most metrics: of something else
    if sparse or len(steps) < _FEWEST or any(steps_of_label(label) is None for label in steps):
        return {}
    at_line = {label: line for line, (label, _) in reversed([*zip(lines[1:], told, strict=True)])}
    found: dict[str, Wide] = {}
    for at in values:
        cells: Mapping[tuple[str, str], str] = dict(zip(told, (row[at] for row in body), strict=True))
        wide = [[label, *(cells.get((label, metric), "") for metric in metrics)] for label in steps]
        found[names[at] or f"column {at + 1}"] = Wide(
            [lines[0], *(at_line[label] for label in steps)], [[names[step], *metrics], *wide]
        )
    return found


def _is_of_values(name: str, at: int, body: Sequence[Sequence[str]]) -> bool:
    """Whether a column has numbers in most of its cells, and no changes."""
    told = [row[at] for row in body if not is_empty(row[at])]
    numbers = sum(cell_values(cell)[0] is not None for cell in told)
    is_run = not is_change(name) and not are_changes(told) and _NO_RUN.search(name) is None
    return is_run and 2 * numbers > len(told) > 0


def with_title(
    rows: Sequence[Sequence[str]], title: str, is_known: Callable[[str], bool]
) -> Sequence[Sequence[str]] | None:
    """The rows of a table of steps and runs with the metric that its title names in each; None for any other table."""
    header, *body = rows
    names = [name_in(cell) for cell in header]
    counted = names[0].lower() in _COUNTED or bool(steps_in_remark(header[0]))
    if not body or not counted or len(title) > LONGEST:
        return None
    if any(is_known(name) or _NO_RUN.search(name) for name in names[1:]):
        return None
    metric = _metric_in(title, is_known)
    if metric is None:
        return None
    return [[header[0], "metric", *header[1:]], *([row[0], metric, *row[1:]] for row in body)]


def _metric_in(title: str, is_known: Callable[[str], bool]) -> str | None:
    """The metric that a title names and says no more than: `### Validation accuracy by step`, `Val`."""
    name = name_in(_MARKS.sub("", title.strip()))
    bare = _BEHIND_METRIC.sub("", _BEHIND_METRIC.sub("", name))  # trajectory (200 problems)
    if bare.lower() in HELD_OUT:
        return f"{bare} reward"
    return next((one for one in (bare, name) if is_known(one)), None)
