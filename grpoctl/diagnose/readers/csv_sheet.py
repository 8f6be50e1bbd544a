"""A CSV as a plain table: what spreadsheets put around it is taken away, and decimal commas are read as points.

A sheet may have a title above its header, units below it, averages at its end, `1,034` or `0,5` for a number, and a
column for each step (`df.T.to_csv()`). What is not here: lines and bounds (csv_cells), and which metric a column is
(csv_table).
"""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import takewhile
from pathlib import Path

from core.errors import SpecError
from core.metrics import declared
from grpoctl.diagnose.readers.csv_cells import (
    ABOVE_SHARES,
    DELIMITERS,
    EITHER,
    EMPTY,
    STEP,
    Table,
    is_long,
    lines_at_the_top,
    number,
    numbers_rows,
    plain,
    read_cells,
    table_of,
    whole,
)
from grpoctl.diagnose.readers.metric_names import ONE_VALUE, STEPS, name_of

_NAMED = 6  # rows that a note names
_LONG_LABEL = 20  # characters of one
_STEP_LABEL = re.compile(r"(?:(?:global_)?steps?|iter(?:ation)?|ckpt|checkpoint)[\s_-]*(\d+)", re.IGNORECASE)
_BY_COMMA = re.compile(r"[-+]?(?:\d+|[1-9]\d{0,2}(?:\.\d{3})+),\d+(?:[eE][-+]?\d+)?\s*%?")  # 0,5 and 1.034,5
_BY_POINT = re.compile(r"[-+]?\d*\.\d+(?:[eE][-+]?\d+)?\s*%?")
_HUNDREDS = re.compile(r"[-+]?[1-9]\d\d")
_UNIT_ENDS = re.compile(r"[\s/()\[\]*·]+")
_UNITS = frozenset({
    "%", "#", "0-1", "0–1", "0..1", "tokens", "token", "tok", "toks", "nats", "nat", "bits", "steps", "step",
    "s", "sec", "secs", "second", "seconds", "ms", "min", "mins", "minutes", "h", "hrs", "hours", "samples", "prompts",
    "completions", "rollouts", "epochs", "count", "ratio", "fraction", "gb", "gib", "mb", "mib", "usd", "of", "per",
})  # fmt: skip
_GROUPED = {  # thousands, by what stands between them
    ",": re.compile(r"[-+]?[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?\s*%?"),
    ".": re.compile(r"[-+]?[1-9]\d{0,2}(?:\.\d{3})+\s*%?"),
}


def read_table(path: Path, notes: list[str]) -> Table:
    """The file's table, a row a step. Raises SpecError for what is none: empty, binary, ragged, without rows."""
    delimiter, above = _dialect(lines_at_the_top(path))
    cells = read_cells(path, notes, delimiter)[above:]
    table = _named(table_of(path, cells, notes))
    if above:
        notes.append(f"the header is line {cells[0][0]}: what stands above is left out")
    table = _with_points(_turned(table, notes), delimiter, notes)
    table = _without_totals(_without_units(table, notes), notes)
    if len(set(table.header)) < len(table.header):
        double = next(name for name in table.header if table.header.count(name) > 1)
        raise SpecError(f"has two columns called {double!r}", file=path)
    return table


def columns_at_the_top(path: Path) -> list[str]:
    """What the columns are called, by the file's first lines; [] for what is not text. Raises as csv_cells.header()."""
    delimiter, above = _dialect(lines := lines_at_the_top(path))
    header, *below = _cut(lines, delimiter)[above:] or [[]]
    of_width = [(0, row) for row in below if len(row) == len(header)]
    if above and len(of_width) < len(below):
        return []  # a log with a table in it
    return _turned(_named(Table(path=path, header=header, rows=of_width)), []).header


def _dialect(top: Sequence[str]) -> tuple[str, int]:
    """(what stands between cells, how many lines with cells stand above the header): the first line is the header where
    it names anything, or no later one names two columns.
    """
    first = next(filter(str.strip, top), "")
    usual = max(DELIMITERS, key=first.count)
    if _known(next(iter(_cut([first], usual)), [])):
        return usual, 0
    for delimiter in sorted(DELIMITERS, key=first.count, reverse=True):
        rows = _cut(top, delimiter)
        at = next((at for at, row in enumerate(rows) if _known(row) > 1 and not any(map(_is_number, row))), 0)
        if at:
            return delimiter, at
    return usual, 0


def _cut(lines: Iterable[str], delimiter: str) -> list[list[str]]:
    """The lines with cells; as far as they can be read."""
    rows: list[list[str]] = []
    with suppress(csv.Error):
        rows.extend([*map(str.strip, row)] for row in csv.reader(lines, delimiter=delimiter))
    return [row for row in rows if any(row)]


def _known(cells: Sequence[str]) -> int:
    """How many of the cells name a metric, or number the rows."""
    return sum(numbers_rows(name) or name_of(name) is not None for name in map(_uncommented, cells))


def _uncommented(name: str) -> str:
    """A header's first cell without the mark of a comment, that numpy writes before it."""
    return name.lstrip("# ") or name


def _is_number(cell: str) -> bool:
    return number(cell) is not None


def _named(table: Table) -> Table:
    """The table without columns that have neither name nor cells, and without a comment's mark before its names."""
    header = [_uncommented(name) if at == 0 else name for at, name in enumerate(table.header)]
    unnamed = [at for at, name in enumerate(header) if not name]
    empty = {at for at in unnamed if not any(cells[at].strip() for _, cells in table.rows)}
    if not empty:
        return replace(table, header=header)
    kept = [at for at in range(len(header)) if at not in empty]
    rows = [(line, [cells[at] for at in kept]) for line, cells in table.rows]
    return replace(table, header=[header[at] for at in kept], rows=rows)


def _with_points(table: Table, delimiter: str, notes: list[str]) -> Table:
    """The table with decimal points and no marks between thousands, where its cells tell what a comma is.

    A comma that cannot stand between thousands (`0,5`) is a decimal one, and a point that cannot (`0.5`) a decimal
    point. Where nothing tells, a comma is a decimal one in a table by semicolons, which a comma's countries write.
    """
    by_comma = any(_BY_COMMA.fullmatch(word) and not _GROUPED[","].fullmatch(word) for word in _words(table, ","))
    if not (by_comma or any(map(_GROUPED[","].fullmatch, _words(table, ",")))):
        return table
    by_point = any(map(_is_by_point, _words(table, ".")))
    if by_comma == by_point and (by_comma or delimiter != ";"):
        return table
    if by_point:
        return _rewritten(table, _without_groups)
    if delimiter == ",":
        return table
    notes.append("commas are read as decimal ones")
    return _rewritten(_with_doubts(table), _with_point)


def _with_doubts(table: Table) -> Table:
    """The table with decimal commas, both numbers in each cell that may be 1.201 or 1201: whoever reads it is told."""
    metrics = next((at for at, name in enumerate(table.header) if plain(name) in ONE_VALUE[0]), 0)
    is_of_several = [is_long(table.header) and plain(name) in ONE_VALUE[2] for name in table.header]

    def named(cells: Sequence[str]) -> list[tuple[str, str]]:
        """(what it tells, the cell): a table with a line for each value has those of several metrics in one column."""
        places = zip(is_of_several, table.header, cells, strict=True)
        return [(cells[metrics].strip() if several else name, cell) for several, name, cell in places]

    words: defaultdict[str, set[str]] = defaultdict(set)
    for _, cells in table.rows:
        for name, cell in named(cells):
            words[name].add(cell.strip())
    doubtful = {name for name, told in words.items() if _may_be_decimal(name, told)}
    if not doubtful:
        return table
    rows = [
        (line, [_both(cell.strip()) if name in doubtful else cell for name, cell in named(cells)])
        for line, cells in table.rows
    ]
    return replace(table, rows=rows)


def _may_be_decimal(name: str, words: Collection[str]) -> bool:
    """Whether points before three digits may be decimal ones beside another column's decimal commas.

    Not of what is counted in wholes, nor where a number has a comma or two points, or stands between 100 and 999 alone.
    """
    pointed = [word for word in words if _GROUPED["."].fullmatch(word)]
    metric = declared(name_of(name) or "")
    is_count = plain(name) in STEPS or (metric is not None and metric.unit in ("count", "tokens"))
    if not pointed or is_count or any(word.count(".") > 1 for word in pointed):
        return False
    return not any(_BY_COMMA.fullmatch(word) or _HUNDREDS.fullmatch(word) for word in words)


def _both(word: str) -> str:
    """A number with a point and the one without it."""
    return EITHER.format(word, word.replace(".", "")) if _GROUPED["."].fullmatch(word) else word


def _words(table: Table, mark: str) -> Iterable[str]:
    """The cells that have a mark."""
    for _, cells in table.rows:
        if mark in "".join(cells):  # quicker than to look at each
            yield from (cell.strip() for cell in cells if mark in cell)


def _is_by_point(word: str) -> bool:
    """Whether a point in a number can be no mark between thousands."""
    if _BY_POINT.fullmatch(word):
        return _GROUPED["."].fullmatch(word) is None
    return "," in word and _GROUPED[","].fullmatch(word) is not None


def _without_groups(word: str) -> str:
    """The cell of a table with decimal points, without marks between thousands."""
    return word.replace(",", "") if "," in word and _GROUPED[","].fullmatch(word) else word


def _with_point(word: str) -> str:
    """The cell of a table with decimal commas, with a decimal point."""
    if "," in word and _BY_COMMA.fullmatch(word):
        return word.replace(".", "").replace(",", ".")
    return word.replace(".", "") if "." in word and _GROUPED["."].fullmatch(word) else word


def _rewritten(table: Table, rewrite: Callable[[str], str]) -> Table:
    rows = [(line, [rewrite(cell.strip()) for cell in cells]) for line, cells in table.rows]
    return replace(table, rows=rows)


def _without_units(table: Table, notes: list[str]) -> Table:
    """The table without a line of units below its header; numbers of a column in percent are percentages then."""
    if len(table.rows) < 2:
        return table
    units, below = (cells for _, cells in table.rows[:2])
    told = [unit for unit in map(str.strip, units) if unit.lower() not in EMPTY]
    if len(told) < 2 or any(map(_is_number, told)) or sum(_is_number(cell.strip()) for cell in below) < 2:
        return table
    if not all(map(_is_unit, told)):
        return table
    notes.append(f"line {table.rows[0][0]} has units, and no row")
    rows = table.rows[1:]
    for at, unit in enumerate(units):
        numbers = [number(cells[at].strip()) or 0 for _, cells in rows] if "%" in unit else []
        if any(value > ABOVE_SHARES for value in numbers):
            rows = [(line, [*cells[:at], _percentage(cells[at]), *cells[at + 1 :]]) for line, cells in rows]
    return replace(table, rows=rows)


def _is_unit(cell: str) -> bool:
    """Whether a cell is short words of units, in brackets or not: `tok/s`, `% of samples`; not `n.d.` or `baseline`."""
    return _UNITS.issuperset(filter(None, _UNIT_ENDS.split(cell.lower())))


def _percentage(cell: str) -> str:
    return f"{cell.strip()}%" if _is_number(cell.strip()) and "%" not in cell else cell


def _turned(table: Table, notes: list[str]) -> Table:
    """The table with a row a step, where it has a column for each (`step,10,20`) and its rows are called as metrics.

    Columns that are only counted (pandas' index, over a row of steps) are no steps.
    """
    steps = [_step_of(label) for label in table.header[1:]]
    if len(steps) < 2 or None in steps or len({*steps}) < len(steps):
        return table
    names = [cells[0].strip() for _, cells in table.rows]
    if name_of(table.header[0]) not in (None, STEP) or not any(map(name_of, names)):
        return table
    notes.append("the table has a column for each step: it is turned round")
    line = table.rows[0][0]
    columns = zip(*(cells[1:] for _, cells in table.rows), strict=True)
    if any(map(numbers_rows, names)):
        return replace(table, header=names, rows=[(line, list(column)) for column in columns])
    rows = [(line, [str(step), *column]) for step, column in zip(steps, columns, strict=True)]
    return replace(table, header=[STEP, *names], rows=rows)


def _step_of(label: str) -> int | None:
    """The step that a column is called by: `10`, `step 10`."""
    match = _STEP_LABEL.fullmatch(label)
    return int(match[1]) if match else whole(label)


def _without_totals(table: Table, notes: list[str]) -> Table:
    """The table without the rows at its end whose step is a word (AVERAGE, MAX), where all others have a number."""
    place = next((at for at, column in enumerate(table.header) if numbers_rows(column)), None)
    if place is None:
        return table
    labels = [cells[place].strip() for _, cells in table.rows]
    totals = list(takewhile(_is_word, reversed(labels)))
    steps = labels[: len(labels) - len(totals)]
    if not totals or not steps or any(whole(label) is None for label in steps):
        return table
    left = ", ".join(label[:_LONG_LABEL] for label in reversed(totals[-_NAMED:]))
    notes.append(f"{len(totals)} rows at the end have no step ({left}): they are left out")
    return replace(table, rows=table.rows[: len(steps)])


def _is_word(label: str) -> bool:
    """Whether it is no number, and says none."""
    return label.lower() not in EMPTY and number(label) is None and not any(map(str.isdigit, label))
