"""A CSV of metrics, one row a step (or an epoch) -> a case. Columns are named by --map, or as ours or TRL's are.

What is not here: the cells of a file (cells.py), tables with one column a step (turn them round first) and decimal
commas (write points).
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress

from core.errors import GrpoError, SpecError
from core.health.case import FOREIGN, Case
from core.health.finding import StepTable
from core.metrics import METRICS, unknown_metric
from grpoctl.diagnose.readers.base import Asked, Read
from grpoctl.diagnose.readers.cells import Table, cell, header, read_table, whole
from grpoctl.diagnose.readers.ranges import impossible
from grpoctl.diagnose.readers.trl_names import OURS, name_of

_SUFFIXES = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
_STEPS = ("step", "steps", "global_step", "iteration", "iter", "epoch", "epochs")  # columns that number the rows
STEP = "step"
_NAMED = 6
_MAP = '--map "COLUMN=METRIC"'


class _Csv:
    """A table of text: comma, semicolon or tab between cells."""

    name = "csv"
    looks_for = "a .csv or .tsv (any name with --map) whose first row names metrics, ours or TRL's"

    def knows(self, asked: Asked) -> bool:
        """By its name, or because columns were mapped."""
        if asked.path is None or not asked.path.is_file():
            return False
        return asked.path.name.lower().endswith(_SUFFIXES) or bool(asked.columns)

    def read(self, asked: Asked) -> Read:
        """Rows by step; a cell that is empty is unknown, one that is NaN or infinite was measured and is no number."""
        path = asked.path
        assert path is not None  # knows() was asked
        notes: list[str] = []
        table = read_table(path, notes)
        names = _names(table, asked.columns)
        rows, more = _rows(table, names)
        aside = [column for column in table.header if column and column not in names]
        left = [column for column in aside if not _numbers_rows(column) or STEP in names.values()]
        if left:
            tail = f" and {len(left) - _NAMED} more" if len(left) > _NAMED else ""
            more.append(f"columns left out ({', '.join(left[:_NAMED])}{tail}): {_MAP} takes one in")
        return Read(case=Case(rows=rows), kind=self.name, source=str(path), notes=(*more, *notes))


READER = _Csv()


def has_known_header(asked: Asked) -> bool:
    """Whether the file's first line names a metric or numbers the rows: then it is a table, whatever its cells are."""
    with suppress(GrpoError):
        columns = header(asked.path) if asked.path is not None else []
        return len(columns) > 1 and any(_metric(column) is not None or _numbers_rows(column) for column in columns)
    return False


def _names(table: Table, said: Mapping[str, str]) -> dict[str, str]:
    """Column -> metric: as the user says, else by the column's own name. Raises SpecError."""
    header, path = table.header, table.path
    for column in said:
        if column not in header:
            near = difflib.get_close_matches(column, header, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(header[:20])}"
            raise SpecError(f"has no column {column!r}; {hint}", file=path)
    names = {column: _known(metric) for column, metric in said.items()}
    for column in header:
        own = _metric(column)
        if own not in (None, STEP) and column not in names and not _numbers_rows(column) and own not in names.values():
            names[column] = own
    if double := _first_double(names.values()):
        raise SpecError(f"two columns are mapped to {double}", file=path)
    if not set(names.values()) - {STEP}:
        some = ", ".join(header[:8])
        raise SpecError(f"no column is known ({some}); {_MAP} names one, e.g. reward/mean, loss, kl", file=path)
    return names


def _metric(name: str) -> str | None:
    """The metric of that name, ours, TRL's or a foreign log's; None where there is none."""
    return name if name in FOREIGN else name_of(name)


def _known(metric: str) -> str:
    """The metric that --map names. Raises SpecError with the nearest."""
    own = _metric(metric)
    if own is None:
        near = difflib.get_close_matches(metric, [*METRICS, *FOREIGN, *OURS], n=1)
        hint = f"did you mean {near[0]}?" if near else unknown_metric(metric)
        raise SpecError(f"no metric {metric!r} (--map); {hint}")
    return own


def _rows(table: Table, names: Mapping[str, str]) -> tuple[StepTable, list[str]]:
    """The rows, ordered by step, and what was taken for granted. A step that comes twice: the last one stands."""
    numbering = next((column for column, metric in names.items() if metric == STEP), None)
    steps, how = _steps(table) if numbering is None else _mapped_steps(table, numbering)
    notes = [how]
    places = [(table.header.index(column), metric) for column, metric in names.items() if metric != STEP]
    rows: list[dict[str, float | None]] = []
    for line, cells in table.rows:
        values = {metric: _value(cells[place], table, (line, place), metric) for place, metric in places}
        row = {metric: value for metric, (known, value) in values.items() if known}
        if any(not metric.startswith("eval/") for metric in row):
            row.setdefault("update", 1.0)
        rows.append(row)
    if steps[0] == 0 and "update" in rows[0]:  # ours have evaluations before the first update there, and nothing else
        steps = [step + 1 for step in steps]
        notes.append("the table counts from 0: its first row is step 1")
    found = {step: {"step": float(step), **row} for step, row in zip(steps, rows, strict=True)}
    if len(found) < len(rows):
        notes.append(f"{len(rows) - len(found)} rows repeat a step: the last one stands")
    if "update" not in names.values():
        notes.append("the table does not say which steps moved weights: each row with a metric of training is taken to")
    return [found[step] for step in sorted(found)], notes


def _value(text: str, table: Table, at: tuple[int, int], metric: str) -> tuple[bool, float | None]:
    """As cell(). Raises SpecError for a number that the metric cannot have, too."""
    line, place = at
    known, value = cell(text, table, line, place)
    if value is not None and (why := impossible(metric, value)):
        column = table.header[place]
        raise SpecError(f"{column}: got {text.strip()[:40]!r} for {metric}; {why}", file=table.path, line=line)
    return known, value


def _mapped_steps(table: Table, column: str) -> tuple[list[int], str]:
    """The rows' numbers in the column that the user names. Raises SpecError where one is no whole number."""
    place, steps = table.header.index(column), []
    for line, cells in table.rows:
        step = whole(cells[place])
        if step is None:
            raise SpecError(
                f"{column}: got {cells[place][:40]!r}; a step is a whole number", file=table.path, line=line
            )
        steps.append(step)
    return steps, f"rows are numbered by the column {column}"


def _steps(table: Table) -> tuple[list[int], str]:
    """The rows' numbers: a column of whole ones, else their order; and a sentence on it."""
    columns = {column.strip().lower().replace(" ", "_"): place for place, column in enumerate(table.header)}
    for name in _STEPS:
        if name in columns:
            steps = [whole(cells[columns[name]]) for _, cells in table.rows]
            known = [step for step in steps if step is not None]
            if len(known) == len(steps):
                return known, f"rows are numbered by the column {table.header[columns[name]]}"
    return list(range(1, len(table.rows) + 1)), "the table has no column of whole steps: a row is counted as one step"


def _numbers_rows(column: str) -> bool:
    return column.strip().lower().replace(" ", "_") in _STEPS


def _first_double(names: Iterable[str]) -> str | None:
    return next((name for name, count in Counter(names).items() if count > 1), None)
