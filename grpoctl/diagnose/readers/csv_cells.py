"""The cells of a CSV, bounded, with one clear error for what is no table; and which of its cells are of which run.

A file may have a line for each value (run, metric, step, value), a column for each run (W&B's panels), or a column that
names the run. What is here: such tables as one of one run each, a row a step, a column a metric. What is not: which
metric a column is (csv_table).
"""

from __future__ import annotations

import csv
import itertools
import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from core.errors import SpecError
from grpoctl.diagnose.readers.base import Source
from grpoctl.diagnose.readers.metric_names import ONE_VALUE, RUNS, STEPS, is_setting, name_of, split_named
from grpoctl.diagnose.readers.several_runs import NoMetricError, are_runs, are_slices
from grpoctl.diagnose.readers.text import LONGEST, head, is_text, text_lines
from grpoctl.files import storage_errors

STEP = "step"
EMPTY = frozenset({"", "-", "–", "—", "na", "n/a", "null", "none"})
NUMBERS_ROWS = (*STEPS, "epoch", "epochs")  # columns that do
_BOUNDS = ("__MIN", "__MAX")  # of W&B
_NAMED = 6  # kinds of lines that a message names
DELIMITERS = ",;\t"
MOST_ABOVE = 20  # lines above a header
_COLUMNS = 2000
_ROWS = 1_000_000
_NO_NAME = re.compile(r"[:={}]|\d\.\d")  # a line of a log that has commas, too
_LONG_CELL = 40  # characters of a cell that an error shows
_PERCENT = re.compile(r"(.+?)\s*[%\uff05]")
_TAG = re.compile(r"(?:.*-)?tag-(.+?)\.csv(?:\.gz)?", re.IGNORECASE)  # TensorBoard's download: run-RUN-tag-TAG.csv
_OF_ONE_TAG = ["wall time", "step", "value"]
_OF_A_RUN = frozenset({"status", "state", "duration", "runtime", "start_time", "end_time", "created", "created_at"})
_RUN_NAMES = ("name", "run_name", "run", "run_id", "run_uuid", "id")  # in a table with a row for each run
ABOVE_SHARES = 1.001  # what no rounding makes of a share
EITHER = "{} (or {})"  # a cell that is one number or another
_HINTS = (
    (re.compile(r"[-+]?\d+,\d+\s*%?"), "write a decimal point"),
    (
        re.compile(EITHER.replace("(", r"\(").replace(")", r"\)").format(r"\S+", r"\S+")),
        "write a decimal comma, or no point",
    ),
)
_OF_TIME = re.compile(r"(?:relative_|wall_?)?time(?:_\(.*\))?|_?timestamp|_runtime")
_LONGEST_LIST = 200  # characters


Rows = list[tuple[int, list[str]]]  # (line, its cells)


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """The header, and the rows with the lines they stand on; every row has as many cells as the header."""

    path: Path
    header: list[str]
    rows: Rows


def tables_by_run(table: Table, source: Source) -> list[tuple[str, Table]]:
    """(run, its table), in the file's order; the table itself, of a run without a name, where there are no several.

    Of a panel of which a column is mapped the user has chosen; a column that is mapped names no run.
    """
    if (runs := _several_runs_of(table.header)) and source.columns.keys().isdisjoint(table.header):
        return [(run, _columns_of(table, run)) for run in runs]
    columns = [at for at in _run_columns(table) or _names_of_rows(table) if table.header[at] not in source.columns]
    if not columns:
        return [("", table)]
    kept = [place for place in range(len(table.header)) if place not in columns]
    header = [table.header[place] for place in kept]
    return [
        (run, replace(table, header=header, rows=[(line, [cells[place] for place in kept]) for line, cells in rows]))
        for run, rows in _rows_by(table, columns).items()
    ]


def named_anywhere(table: Table) -> list[str]:
    """The columns of all runs of a table, by their plain names, too, and the metrics that its lines name."""
    plain_ones = [column.rpartition(" - ")[2] for column in table.header]
    lines = table.rows if is_long(table.header) else []
    named = _places(table.header)[0] if lines else 0
    metrics = [cells[named].strip() for _, cells in lines]
    return list(dict.fromkeys([*table.header, *plain_ones, *metrics]))


def _columns_of(table: Table, run: str) -> Table:
    """The panel's columns of one run, and the rows in which they say something."""
    of_run = {at for at, column in enumerate(table.header) if column.rpartition(" - ")[0] == run}
    kept = [at for at, column in enumerate(table.header) if at in of_run or _is_place(column)]
    rows = [(line, cells) for line, cells in table.rows if any(cells[at].strip().lower() not in EMPTY for at in of_run)]
    header = [table.header[at] for at in kept]
    return replace(table, header=header, rows=[(line, [cells[at] for at in kept]) for line, cells in rows])


def _run_columns(table: Table) -> list[int]:
    """The columns that tell runs apart: all cells are filled, and runs tell the same steps (or epochs).

    [] where there are none. In a table with a line for each value a run may have its own steps.
    """
    places = [at for at, column in enumerate(table.header) if plain(column) in RUNS]
    kinds = [{cells[at].strip() for _, cells in table.rows} for at in places]
    several = [at for at, of_column in zip(places, kinds, strict=True) if len(of_column) > 1 and "" not in of_column]
    if not several or is_long(table.header):
        return several
    numbering = next((at for at, column in enumerate(table.header) if numbers_rows(column)), _update_column(table))
    if numbering is None:
        return []
    steps = {run: [cells[numbering].strip() for _, cells in rows] for run, rows in _rows_by(table, several).items()}
    return several if are_runs(steps) else []


def _update_column(table: Table) -> int | None:
    """The column `update` where it counts updates; a mark says 0 or 1."""
    for at, column in enumerate(table.header):
        if name_of(column) == "update" and any((whole(cells[at]) or 0) > 1 for _, cells in table.rows):
            return at
    return None


def _names_of_rows(table: Table) -> list[int]:
    """The column that names the run of each row, in a dashboard's table of runs: it says what became of each, too."""
    named = [plain(column) for column in table.header]
    if len(table.rows) < 2 or _OF_A_RUN.isdisjoint(named) or _is_numbered(table):
        return []
    for name in _RUN_NAMES:
        told = {cells[named.index(name)].strip() for _, cells in table.rows} if name in named else set()
        if len(told) == len(table.rows) and not any(cell.lower() in EMPTY or number(cell) is not None for cell in told):
            return [named.index(name)]
    return []


def _is_numbered(table: Table) -> bool:
    """Whether a column's steps rise from row to row, as those of one run do; the last steps of several runs do not."""
    update = _update_column(table)
    counts = [at for at, column in enumerate(table.header) if numbers_rows(column) or at == update]
    told = [[number(cells[at].strip()) for _, cells in table.rows] for at in counts]
    return any(all(a is not None and b is not None and a < b for a, b in itertools.pairwise(steps)) for steps in told)


def _rows_by(table: Table, columns: Sequence[int]) -> dict[str, Rows]:
    """The rows by what they say in some columns."""
    rows: dict[str, Rows] = {}
    for line, cells in table.rows:
        rows.setdefault(", ".join(cells[place].strip() for place in columns), []).append((line, cells))
    return rows


def of_one_run(table: Table, source: Source, notes: list[str]) -> Table:
    """The run's table, with a row a step and plain names. Raises SpecError for lines that differ by a split, say."""
    return _of_tag(_of_dashboard(_of_long(table, source, notes)))


def _of_long(table: Table, source: Source, notes: list[str]) -> Table:
    """The table with a column for each metric, where it has a line for each value: run_name, metric, step, value.

    As it stands where one of its columns is mapped. Metrics that nobody reads are left out, with a note. Raises
    SpecError for lines of several runs.
    """
    if not is_long(table.header) or not source.columns.keys().isdisjoint(table.header):
        return table
    named, numbered, valued = _places(table.header)
    table = _with_splits(table, named)
    _refuse_several(table, named, numbered, valued)
    known = [row for row in table.rows if name_of(row[1][named].strip()) or row[1][named].strip() in source.columns]
    if not known:
        some = ", ".join(dict.fromkeys(cells[named].strip() for _, cells in table.rows))[:_LONGEST_LIST]
        raise NoMetricError(f"no metric is known ({some}); {source.how_to_map} names one, e.g. kl", file=table.path)
    by_step: dict[int | str, tuple[int, dict[str, str]]] = {}
    again = stepless = 0
    for line, cells in known:
        metric, step, value = (cells[place].strip() for place in (named, numbered, valued))
        if not step or not math.isfinite(number(step) or 0.0):
            stepless += 1
            continue
        count = whole(step)
        told = by_step.setdefault(step if count is None else count, (line, {}))[1]
        again += told.get(metric, value) != value
        told[metric] = value
    lost = {"lines of metrics that no rule reads": len(table.rows) - len(known), "lines without a step": stepless}
    notes += [f"{count} {what} are left out" for what, count in lost.items() if count]
    notes += [f"{again} lines tell another value of a metric and step: the last one stands"] if again else []
    metrics = list(dict.fromkeys(cells[named].strip() for _, cells in known))
    steps = list(by_step)
    if all(isinstance(step, int) for step in steps):  # the lines are one metric after another
        steps.sort()
    set_by = [at for at, column in enumerate(table.header) if is_setting(column)]
    settings = [known[0][1][at] for at in set_by]
    rows = [
        (by_step[step][0], [str(step), *(by_step[step][1].get(metric, "") for metric in metrics), *settings])
        for step in steps
    ]
    return replace(table, header=[STEP, *metrics, *(table.header[at] for at in set_by)], rows=rows)


def _with_splits(table: Table, named: int) -> Table:
    """The long table with `eval/` and the like before a metric's name, where another column tells the split of each."""
    for place in range(len(table.header)):
        told = {cells[place] for _, cells in table.rows}
        if place == named or len(told) < 2 or not all(map(split_named, told)):
            continue
        rows = []
        for line, cells in table.rows:
            name = f"{split_named(cells[place])}/{cells[named]}"
            rows.append((line, [{named: name, place: ""}.get(at, cell) for at, cell in enumerate(cells)]))
        return replace(table, rows=rows)
    return table


def is_long(columns: Sequence[str]) -> bool:
    """Whether a table of these columns has a line for each value: a name, a step, a value, no metric beside them."""
    named = {*map(plain, columns)}
    if any(named.isdisjoint(names) for names in ONE_VALUE):
        return False
    places = _places(columns)
    beside = [column for at, column in enumerate(columns) if at not in places and not numbers_rows(column)]
    return all(name_of(column) is None or is_setting(column) for column in beside)


def _places(columns: Sequence[str]) -> list[int]:
    """Where a long table has the metric's name, its step (of several counts the first of STEPS), the value."""
    named = [plain(column) for column in columns]
    return [named.index(next(name for name in names if name in named)) for names in ONE_VALUE]


def _refuse_several(table: Table, named: int, numbered: int, valued: int) -> None:
    """Raises SpecError where another column tells lines of one metric and step apart: a run, a split, an agent."""
    aside = {named, numbered, valued, *(at for at, name in enumerate(map(plain, table.header)) if "time" in name)}
    others = [at for at in range(len(table.header)) if at not in aside and not numbers_rows(table.header[at])]
    first: dict[tuple[str, str], list[str]] = {}
    apart: set[int] = set()
    for _, cells in table.rows:
        before = first.setdefault((cells[named], cells[numbered]), cells)
        apart |= {at for at in others if before is not cells and cells[at] and before[at] and cells[at] != before[at]}
    for at in others:
        kinds = list(dict.fromkeys(cells[at] for _, cells in table.rows if cells[at].strip()))
        is_of_runs = plain(table.header[at]) in RUNS and len(kinds) > 1
        if is_of_runs or (at in apart and len(kinds) < len(table.rows)):
            what = "runs" if is_of_runs else f"kinds of lines by {table.header[at]}"
            raise SpecError(f"{_several(kinds, what)}: keep those of one ({table.header[at]})", file=table.path)


def _several(kinds: Sequence[str], what: str = "runs") -> str:
    """That there are several, and what they are called."""
    more = f" and {len(kinds) - _NAMED} more" if len(kinds) > _NAMED else ""
    return f"has {len(kinds)} {what} ({', '.join(kind[:_LONG_CELL] for kind in kinds[:_NAMED])}{more})"


def _runs_of(columns: Iterable[str]) -> list[str]:
    """The runs that W&B's exports put before each column (`RUN - train/reward`); [] where a column has none."""
    runs = {column.rpartition(" - ")[0]: None for column in columns if not _is_place(column)}
    return [] if "" in runs else list(runs)


def _is_place(column: str) -> bool:
    """Whether a column says where in the run a row stands: by a step, or by a time."""
    return numbers_rows(column) or _OF_TIME.fullmatch(plain(column)) is not None


def _several_runs_of(columns: Sequence[str]) -> list[str]:
    """The runs of a panel that shows a metric of several; [] where it is of one, or the names are of splits."""
    runs = _runs_of(columns)
    if are_slices(runs):
        return []
    shown = Counter(column.rpartition(" - ")[2] for column in columns if not _is_place(column))
    alike = any(count > 1 and name_of(name) is not None for name, count in shown.items())
    return runs if len(runs) > 1 and alike else []


def plain_names(columns: list[str]) -> list[str]:
    """The columns' names without the one run that W&B's exports put before each."""
    return [column.rpartition(" - ")[2] for column in columns] if len(_runs_of(columns)) == 1 else columns


def _of_dashboard(table: Table) -> Table:
    """The table without what W&B's exports add: the run's name in every column, and the bounds of smoothed points."""
    kept = [place for place, name in enumerate(table.header) if not name.endswith(_BOUNDS)]
    names = plain_names([table.header[place] for place in kept])
    if len(set(names)) < len(names):
        return table
    return replace(table, header=names, rows=[(line, [cells[place] for place in kept]) for line, cells in table.rows])


def _of_tag(table: Table) -> Table:
    """TensorBoard's download of one tag (`Wall time,Step,Value`), its column called as the file says: the slashes of a
    tag are underscores in the file's name.
    """
    if [name.lower() for name in table.header] != _OF_ONE_TAG or (match := _TAG.fullmatch(table.path.name)) is None:
        return table
    return replace(table, header=[table.header[0], STEP, with_slashes(match[1])])


def with_slashes(name: str) -> str:
    """The metric's name that a file is called by: some of its underscores were slashes, where one is known then."""
    parts = name.split("_")
    slashed = ["/".join(["_".join(parts[:at]), "_".join(parts[at:])]) for at in range(1, len(parts))]
    inner = ["/".join([parts[0], "_".join(parts[1:at]), "_".join(parts[at:])]) for at in range(2, len(parts))]
    return next((known for known in [name, *slashed, *inner] if name_of(known) is not None), name)


def plain(column: str) -> str:
    return column.strip().lower().replace(" ", "_")


def numbers_rows(column: str) -> bool:
    return plain(column) in NUMBERS_ROWS


def read_cells(path: Path, notes: list[str], delimiter: str) -> Rows:
    """The file's lines as cells, without empty ones. Raises SpecError for what is no text, or cannot be cut."""
    if not is_text(path):
        raise SpecError("is not text, so no table" if head(path) else "is empty", file=path)
    reader = csv.reader(_lines(path, notes), delimiter=delimiter)
    try:
        told = ((reader.line_num, row) for row in reader if any(map(str.strip, row)))
        return list(itertools.islice(told, _ROWS + MOST_ABOVE + 2))
    except csv.Error as error:
        why = "a carriage return inside a line" if "new-line character" in str(error) else str(error)
        raise SpecError(f"is no table: {why} (is it a log? give it another ending than .csv)", file=path) from None


def table_of(path: Path, cells: Rows, notes: list[str]) -> Table:
    """The lines as a table. Raises SpecError for what is none: ragged, too large, nothing below the header."""
    header, rows = [cell.strip() for cell in cells[0][1]] if cells else [], cells[1:]
    if not 2 <= len(header) <= _COLUMNS:
        raise SpecError(f"a table has 2 to {_COLUMNS} columns by comma, ; or tab; this has {len(header)}", file=path)
    if not rows or len(rows) > _ROWS:
        raise SpecError(f"a table has 1 to {_ROWS} rows below its header; this has {len(rows) or 'none'}", file=path)
    if len(rows) > 1 and len(rows[-1][1]) < len(header) and not _is_ended(path):
        notes.append(f"line {rows.pop()[0]} is not whole: it is left out")
    for line, row in rows:
        if len(row) != len(header):
            raise SpecError(f"has {len(row)} cells, the header has {len(header)}", file=path, line=line)
    return Table(path=path, header=header, rows=rows)


def lines_at_the_top(path: Path) -> list[str]:
    """The first lines, among which the header is; [] for what is not text. Raises as header()."""
    return list(itertools.islice(_lines(path, []), MOST_ABOVE + 1)) if is_text(path) else []


def header(path: Path) -> list[str]:
    """The cells of the first line; [] for what is not text. Raises StorageError, and SpecError for an endless line."""
    first = next(_lines(path, []), "") if is_text(path) else ""
    with suppress(csv.Error):
        return [cell.strip() for cell in next(csv.reader([first], delimiter=max(DELIMITERS, key=first.count)), [])]
    return []


def has_commas(path: Path) -> bool:
    """Whether all lines of the file are cells with commas between, as many in each, names above and mostly numbers.

    Its last line may not be whole yet. Raises as header().
    """
    lines = csv.reader(filter(str.strip, _lines(path, [])))
    numbers = others = odd = 0
    try:
        names = next(lines, [])
        if len(names) < 2 or any(map(_NO_NAME.search, names)):
            return False
        for cells in lines:
            if odd:
                return False
            odd = len(cells) != len(names)
            told = sum(number(cell.strip()) is not None or cell.strip().lower() in EMPTY for cell in cells)
            numbers, others = numbers + told, others + len(cells) - told
    except csv.Error:  # a cell that is longer than any
        return False
    return numbers > others and not (odd and _is_ended(path))


def _is_ended(path: Path) -> bool:
    """Whether the file's last line has its end; of a compressed one nobody looks."""
    with storage_errors("read", path), path.open("rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - 1))
        return path.suffix == ".gz" or file.read(1) in (b"\n", b"\r")


def cell(text: str, table: Table, line: int, place: int) -> tuple[bool, float | None]:
    """(whether the cell says something, the number; None for NaN and infinities). 12% is 0.12.

    Raises SpecError for text.
    """
    word = text.strip()
    if word.lower() in EMPTY:
        return False, None
    value = number(word)
    if value is None:
        why = next((hint for form, hint in _HINTS if form.fullmatch(word)), "a number belongs there, or nothing")
        shown = word[:_LONG_CELL] + ("…" if len(word) > _LONG_CELL else "")
        raise SpecError(f"{table.header[place]}: got {shown!r}; {why}", file=table.path, line=line)
    return True, value if math.isfinite(value) else None


def whole(text: str) -> int | None:
    """The whole number of at least 0 in a cell; None for anything else."""
    value = number(text.strip())
    return int(value) if value is not None and value.is_integer() and 0 <= value < 1e15 else None


def _lines(path: Path, notes: list[str]) -> Iterator[str]:
    """The file's lines with their ends. Raises SpecError for one that is longer than a table's."""
    for line in text_lines(path, notes):
        if len(line.text) >= LONGEST:
            raise SpecError(f"is longer than {LONGEST} characters, so this is no table", file=path, line=line.number)
        yield line.text.replace("\0", "") + "\n"


def number(word: str) -> float | None:
    """The number; a percentage as a fraction. None for text (`1_000`, which Python would take, is text)."""
    percent = _PERCENT.fullmatch(word)
    try:
        value = float((percent[1] if percent else word).replace("_", "x"))
    except ValueError:
        return None
    return value / 100 if percent else value
