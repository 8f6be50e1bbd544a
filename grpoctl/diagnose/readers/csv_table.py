"""A CSV of metrics, one row a step (or an epoch) -> a case. Columns are named by --map, or as ours or TRL's are.

First the cells of the file, bounded, with one clear error for what is no table; then the metrics in them. What is not
here: tables with one column a step (turn them round first) and decimal commas (write points).
"""

from __future__ import annotations

import csv
import difflib
import itertools
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from core.errors import GrpoError, SpecError
from core.health.case import Case
from core.health.finding import StepTable
from grpoctl.diagnose.readers.attempts import COUNTS, newest_attempt
from grpoctl.diagnose.readers.base import SOME_WRONG, TOO_SMALL, Reading, Source, impossible
from grpoctl.diagnose.readers.metric_names import STEPS, in_our_sense, metrics_of, name_of
from grpoctl.diagnose.readers.text import LONGEST, head, is_text, text_lines
from grpoctl.diagnose.readers.trainer_log import bounded_by, slices_of, span_of

_SUFFIXES = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
_STEPS = (*STEPS, "epoch", "epochs")  # columns that number the rows
_STEP = "step"
_BY_ORDER = "the table has no column of whole steps: a row is counted as one step"
_BOUNDS = ("__MIN", "__MAX")  # of W&B
_NAMED = 6  # columns that a note names
_DELIMITERS = ",;\t"
_COLUMNS = 2000
_ROWS = 1_000_000
_LONG_CELL = 40  # characters of a cell that an error shows
_PERCENT = re.compile(r"(.+?)\s*[%\uff05]")
_OF_PERCENT = re.compile(r"[%\uff05]|\b(?:pct|percent)\b", re.IGNORECASE)  # a column's name
_TAG = re.compile(r"(?:.*-)?tag-(.+?)\.csv(?:\.gz)?", re.IGNORECASE)  # TensorBoard's download: run-RUN-tag-TAG.csv
_OF_ONE_TAG = ["wall time", "step", "value"]
_BEGINS_A_NUMBER = re.compile(r"[-+~]?[.,]?\d")
_DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d+\s*%?")
_EXACT = ("step", "update", *TOO_SMALL)
_ROUND_TO, _SHOWN_BY = range(1, 6), 5  # decimals; rows that show that there are no more
_LONG = (  # columns of a table with a line for each value: the metric's name, its step, the value
    ("metric", "metric_name", "tag", "key", "variable"),
    STEPS,
    ("value", "metric_value"),
)
_OF_RUNS = frozenset({"run", "run_name", "run_id", "run_uuid", "experiment", "experiment_name", "seed"})
_SPLITS = frozenset(
    {"train", "training", "eval", "evaluation", "val", "valid", "validation", "test", "dev", "held-out"}
)
_OF_TIME = re.compile(r"(?:relative_|wall_?)?time(?:_\(.*\))?|_?timestamp|_runtime")
_LONGEST_LIST = 200  # characters
_EMPTY = frozenset({"", "-", "–", "—", "na", "n/a", "null", "none"})


class _Csv:
    """A table of text: comma, semicolon or tab between cells."""

    name = "csv"
    looks_for = "a .csv or .tsv (any name with --map) whose first row names metrics, ours or a trainer's"

    def knows(self, source: Source) -> bool:
        """By its name, or because columns were mapped."""
        if source.path is None or not source.path.is_file():
            return False
        if source.path.name.lower().endswith(_SUFFIXES):
            return True
        with suppress(GrpoError):
            return bool(source.columns) and not source.columns.keys().isdisjoint(header(source.path))
        return False

    def read(self, source: Source) -> Reading:
        """Rows by step; a cell that is empty is unknown, one that is NaN or infinite was measured and is no number."""
        path = source.path
        assert path is not None  # knows() came first
        notes: list[str] = []
        table = _of_tag(_of_dashboard(_of_long(read_table(path, notes), source, notes)))
        names = _metrics_of_columns(table, source)
        rows, more = _rows(table, names)
        if lost := _rounded_away(rows):
            rows = [{name: value for name, value in row.items() if value != 0 or name not in lost} for row in rows]
            more.append(f"a {' or '.join(lost)} of 0 may be a small one: the table's numbers are rounded")
        aside = [column for column in table.header if column and column not in names]
        own = _counted_updates(table)
        left = [c for c in aside if c != own and (not _numbers_rows(c) or _STEP in names.values())]
        percent = _in_percent(table)
        more += [
            f"{column} is left out: as {metric} it has values that are none"
            for column in left
            if (metric := name_of(column)) is not None
            and metric not in ("step", "update")
            and not _may_be(table, column, metric, percent)
        ]
        if left:
            tail = f" and {len(left) - _NAMED} more" if len(left) > _NAMED else ""
            more.append(f"columns left out ({', '.join(left[:_NAMED])}{tail}): {source.how_to_map} takes one in")
        span = span_of(rows)
        if span > 1:
            more.append(f"rows are {span} steps apart: each is taken for the mean of so many")
        return Reading(
            case=Case(rows=rows, averaged_over=span), kind=self.name, source=str(path), notes=(*more, *notes)
        )


READER = _Csv()


def _of_long(table: Table, source: Source, notes: list[str]) -> Table:
    """The table with a column for each metric, where it has a line for each value: run_name, metric, step, value.

    As it stands where one of its columns is mapped. Metrics that nobody reads are left out, with a note. Raises
    SpecError for lines of several runs.
    """
    if not _is_long(table.header) or not source.columns.keys().isdisjoint(table.header):
        return table
    named, numbered, valued = _places(table.header)
    _refuse_several(table, named, numbered, valued)
    known = [row for row in table.rows if name_of(row[1][named].strip()) or row[1][named].strip() in source.columns]
    if not known:
        some = ", ".join(dict.fromkeys(cells[named].strip() for _, cells in table.rows))[:_LONGEST_LIST]
        raise SpecError(f"no metric is known ({some}); {source.how_to_map} names one, e.g. kl", file=table.path)
    by_step: dict[int | str, tuple[int, dict[str, str]]] = {}
    again = stepless = 0
    for line, cells in known:
        metric, step, value = (cells[place].strip() for place in (named, numbered, valued))
        if not step or not math.isfinite(_number(step) or 0.0):
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
    rows = [
        (by_step[step][0], [str(step), *(by_step[step][1].get(metric, "") for metric in metrics)]) for step in steps
    ]
    return replace(table, header=[_STEP, *metrics], rows=rows)


def _is_long(columns: Sequence[str]) -> bool:
    """Whether a table of these columns has a line for each value: a name, a step, a value, no metric beside them."""
    plain = {*map(_plain, columns)}
    if any(plain.isdisjoint(names) for names in _LONG):
        return False
    places = _places(columns)
    beside = [column for at, column in enumerate(columns) if at not in places and not _numbers_rows(column)]
    return all(name_of(column) is None for column in beside)


def _places(columns: Sequence[str]) -> list[int]:
    """Where a long table has the metric's name, its step (of several counts the first of STEPS), the value."""
    plain = [_plain(column) for column in columns]
    return [plain.index(next(name for name in names if name in plain)) for names in _LONG]


def _refuse_several(table: Table, named: int, numbered: int, valued: int) -> None:
    """Raises SpecError where another column tells lines of one metric and step apart: a run, a split, an agent."""
    aside = {named, numbered, valued, *(at for at, name in enumerate(map(_plain, table.header)) if "time" in name)}
    others = [at for at in range(len(table.header)) if at not in aside and not _numbers_rows(table.header[at])]
    first: dict[tuple[str, str], list[str]] = {}
    apart: set[int] = set()
    for _, cells in table.rows:
        before = first.setdefault((cells[named], cells[numbered]), cells)
        apart |= {at for at in others if before is not cells and cells[at] and before[at] and cells[at] != before[at]}
    for at in others:
        kinds = list(dict.fromkeys(cells[at] for _, cells in table.rows if cells[at].strip()))
        is_of_runs = _plain(table.header[at]) in _OF_RUNS and len(kinds) > 1
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
    return _numbers_rows(column) or _OF_TIME.fullmatch(_plain(column)) is not None


def _several_runs_of(columns: Sequence[str]) -> list[str]:
    """The runs of a panel that shows a metric of several; [] where it is of one, or the names are of splits."""
    runs = _runs_of(columns)
    shown = Counter(column.rpartition(" - ")[2] for column in columns if not _is_place(column))
    alike = any(count > 1 and name_of(name) is not None for name, count in shown.items())
    return runs if len(runs) > 1 and alike and _SPLITS.isdisjoint(map(_plain, runs)) else []


def _plain_names(columns: list[str]) -> list[str]:
    """The columns' names without the one run that W&B's exports put before each."""
    return [column.rpartition(" - ")[2] for column in columns] if len(_runs_of(columns)) == 1 else columns


def _of_dashboard(table: Table) -> Table:
    """The table without what W&B's exports add: the run's name in every column, and the bounds of smoothed points."""
    kept = [place for place, name in enumerate(table.header) if not name.endswith(_BOUNDS)]
    names = _plain_names([table.header[place] for place in kept])
    if len(set(names)) < len(names):
        return table
    return replace(table, header=names, rows=[(line, [cells[place] for place in kept]) for line, cells in table.rows])


def _of_tag(table: Table) -> Table:
    """TensorBoard's download of one tag (`Wall time,Step,Value`), its column called as the file says: the slashes of a
    tag are underscores in the file's name.
    """
    if [name.lower() for name in table.header] != _OF_ONE_TAG or (match := _TAG.fullmatch(table.path.name)) is None:
        return table
    parts = match[1].split("_")
    slashed = ["/".join(["_".join(parts[:at]), "_".join(parts[at:])]) for at in range(1, len(parts))]
    inner = ["/".join([parts[0], "_".join(parts[1:at]), "_".join(parts[at:])]) for at in range(2, len(parts))]
    name = next((name for name in [match[1], *slashed, *inner] if name_of(name) is not None), match[1])
    return replace(table, header=[table.header[0], _STEP, name])


def has_known_header(source: Source) -> bool:
    """Whether the file's first line names a metric or numbers the rows: then it is a table, whatever its cells are."""
    with suppress(GrpoError):
        columns = _plain_names(header(source.path)) if source.path is not None else []
        return _is_long(columns) or (
            len(columns) > 1 and any(name_of(column) is not None or _numbers_rows(column) for column in columns)
        )
    return False


def _metrics_of_columns(table: Table, source: Source) -> dict[str, str]:
    """Column -> metric: as the user maps it, else by the column's own name. Raises SpecError."""
    header, path = table.header, table.path
    for column in source.columns:
        if column not in header and not source.live:
            near = difflib.get_close_matches(column, header, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(header[:20])}"
            raise SpecError(f"has no column {column!r}; {hint}", file=path)
    names = {column: metric for column, metric in source.columns.items() if column in header}
    if not names and (runs := _several_runs_of(header)):
        how = f"export one of them; {source.how_to_map} names a column of one"
        raise SpecError(f"{_several(runs)}: {how}", file=path)
    counted = _counted_updates(table)
    marks = [(column, own) for column in header if (own := name_of(column)) == "update" and column != counted]
    percent = _in_percent(table)
    fitting = tuple(
        column for column in header if column == (own := name_of(column)) or _may_be(table, column, own, percent)
    )
    for column, own in [*metrics_of(fitting), *marks]:
        if column not in names and not _numbers_rows(column) and own not in names.values():
            names[column] = own
    words = {column for column in names if column not in source.columns and _of_words(table, column)}
    numbers = {metric for column, metric in names.items() if column not in words}
    if numbers - {_STEP} or {names[column] for column in words} == {"stage"}:
        names = {column: metric for column, metric in names.items() if column not in words}
    for metric, count in Counter(names.values()).items():
        if count > 1:
            raise SpecError(f"two columns are mapped to {metric}", file=path)
    if not set(names.values()) - {_STEP}:
        some = ", ".join(header[:8])
        raise SpecError(
            f"no column is known ({some}); {source.how_to_map} names one, e.g. reward/mean, loss, kl", file=path
        )
    return names


def _may_be(table: Table, column: str, metric: str | None, percent: frozenset[int]) -> bool:
    """Whether the column's numbers are ones that the metric may have: a count of dead groups is no share of them.

    A few that it cannot have are mistakes, and are told with their lines.
    """
    if metric is None:
        return True
    place = table.header.index(column)
    numbers = [value for _, cells in table.rows if (value := _number(cells[place].strip())) is not None]
    ours = [in_our_sense(column, value / 100 if place in percent else value) for value in numbers]
    return sum(impossible(metric, value) is not None for value in ours) <= SOME_WRONG * len(ours)


def _of_words(table: Table, column: str) -> bool:
    """Whether the column's cells are words: a run's name, its stage."""
    place = table.header.index(column)
    cells = [word for _, row in table.rows if (word := row[place].strip()).lower() not in _EMPTY]
    return bool(cells) and all(_number(word) is None and not _BEGINS_A_NUMBER.match(word) for word in cells)


def _rows(table: Table, names: Mapping[str, str]) -> tuple[StepTable, list[str]]:
    """The newest attempt's rows by step, and what was taken for granted. Of what comes twice the last stands."""
    numbering = next((column for column, metric in names.items() if metric == _STEP), None)
    steps, how = _own_steps(table) if numbering is None else _mapped_steps(table, numbering)
    rows = _values(table, names)
    counts_from_0 = steps[0] == 0 and "update" in rows[0]
    if counts_from_0:  # ours have evaluations before the first update there, and nothing else
        steps = [step + 1 for step in steps]
    counts = [row | counted for row, counted in zip(rows, _counts(table), strict=True)]
    by_epoch = how == _BY_ORDER and any(row.get("epoch") is not None for row in counts)
    places = [row.get("epoch") for row in counts] if by_epoch else steps
    kept, attempts = newest_attempt(places, counts.__getitem__, "epoch" if by_epoch else "step")
    rows, counts = [rows[at] for at in kept], [counts[at] for at in kept]
    steps = [steps[at] for at in kept]
    begins_again = not _never_falls(steps) and any(_never_falls([row.get(name) for row in counts]) for name in COUNTS)
    begins_again = begins_again and len({*steps}) < len(steps) / 2
    if how == _BY_ORDER or begins_again:
        steps = list(range(1, len(rows) + 1))
        how += ", which begins again: a row is counted as one step" if begins_again else ""
    by_step = _by_step(steps, rows)
    notes = [how, *(["the table counts from 0: its first row is step 1"] if counts_from_0 else []), *attempts]
    if len(by_step) < len(rows):
        notes.append(f"{len(rows) - len(by_step)} rows repeat a step: of what both tell the last one stands")
    if "update" not in names.values():
        notes.append("the table does not say which steps moved weights: each row with a metric of training is taken to")
    return [by_step[step] for step in sorted(by_step)], notes


def _values(table: Table, names: Mapping[str, str]) -> list[dict[str, float | None]]:
    """The metrics of each row, in their order."""
    places = [(table.header.index(column), metric) for column, metric in names.items() if metric != _STEP]
    rows: list[dict[str, float | None]] = []
    percent = _in_percent(table)
    for line, cells in table.rows:
        values = {
            metric: _value(cells[place], table, (line, place), metric, percent=percent) for place, metric in places
        }
        row = {metric: value for metric, (known, value) in values.items() if known}
        if any(not metric.startswith("eval/") for metric in row):
            row.setdefault("update", 1.0)
        rows.append(row | bounded_by(row, slices_of(row)))
    return rows


def _counts(table: Table) -> list[dict[str, float | None]]:
    """What each row says of its place in the run: steps, epochs, tokens."""
    named = [(place, _plain(column)) for place, column in enumerate(table.header)]
    counts = [(place, name) for place, name in named if name in COUNTS]
    return [{name: _number(cells[place].strip()) for place, name in counts} for _, cells in table.rows]


def _by_step(steps: Iterable[int], rows: Iterable[Mapping[str, float | None]]) -> dict[int, dict[str, float | None]]:
    """One row a step: rows of one step that do not contradict each other are one, of others the last one stands."""
    by_step: dict[int, dict[str, float | None]] = {}
    for step, told in zip(steps, rows, strict=True):
        row = by_step.setdefault(step, {"step": float(step)})
        new: Iterable[str] = told
        if not _is_more_of(row, told):
            if "reward/mean" in row and "reward/mean" not in told:  # another stage's, or an evaluation's loss
                new = told.keys() - row.keys()
            else:
                row = by_step[step] = {"step": float(step)}
        trained = row.get("update") == 1.0
        row.update({name: told[name] for name in new})
        if trained:
            row["update"] = 1.0
    return by_step


def _is_more_of(row: Mapping[str, float | None], other: Mapping[str, float | None]) -> bool:
    """Whether two rows of one step may be one (training, and an evaluation): rows of two runs contradict each other."""
    return all(row[name] == value for name, value in other.items() if name in row and name not in (_STEP, "update"))


def _never_falls(values: Sequence[float | None]) -> bool:
    """Whether a count goes on over all rows, and to more than one number."""
    known = [value for value in values if value is not None]
    return len(known) == len(values) and len({*known}) > 1 and all(a <= b for a, b in itertools.pairwise(known))


def _rounded_away(rows: StepTable) -> tuple[str, ...]:
    """The columns whose 0 may be a small number: the table has few decimals, and theirs are the last of them."""
    numbers = [value for row in rows for name, value in row.items() if name not in _EXACT and value is not None]
    decimals = next((places for places in _ROUND_TO if all(round(one, places) == one for one in numbers)), None)
    if decimals is None or len(rows) < _SHOWN_BY:
        return ()
    lost = []
    for name in TOO_SMALL:
        known = [value for row in rows if (value := row.get(name)) is not None]
        smallest = min((abs(value) for value in known if value), default=math.inf)
        if 0.0 in known and smallest < 10 * 10.0**-decimals and all(round(one, decimals) == one for one in known):
            lost.append(name)
    return tuple(lost)


def _in_percent(table: Table) -> frozenset[int]:
    """The columns whose name says percent and whose numbers are more than shares."""
    named = [place for place, column in enumerate(table.header) if _OF_PERCENT.search(column)]
    return frozenset(place for place in named if any((_number(row[place].strip()) or 0) > 1 for _, row in table.rows))


def _value(
    text: str, table: Table, at: tuple[int, int], metric: str, *, percent: frozenset[int]
) -> tuple[bool, float | None]:
    """As cell(). Raises SpecError for a number that the metric cannot have, too."""
    line, place = at
    column = table.header[place]
    known, value = cell(text, table, line, place)
    if value is not None:
        value = in_our_sense(column, value / 100 if place in percent else value)
    if value is not None and (why := impossible(metric, value)):
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


def _own_steps(table: Table) -> tuple[list[int], str]:
    """The rows' numbers: a column of whole ones, else their order; and a sentence on it."""
    columns = {_plain(column): place for place, column in enumerate(table.header)}
    numbering: dict[str, list[int]] = {}
    for name in filter(columns.__contains__, _STEPS):
        known = [step for _, cells in table.rows if (step := whole(cells[columns[name]])) is not None]
        if len(known) == len(table.rows):
            numbering[table.header[columns[name]]] = known
    once = [column for column, steps in numbering.items() if len({*steps}) == len(steps)]  # rather than again and again
    if numbering:
        column = [*once, *numbering][0]
        return numbering[column], f"rows are numbered by the column {column}"
    if (counted := _counted_updates(table)) is not None:
        place = table.header.index(counted)
        return [whole(cells[place]) or 0 for _, cells in table.rows], f"rows are numbered by the column {counted}"
    return list(range(1, len(table.rows) + 1)), _BY_ORDER


def _counted_updates(table: Table) -> str | None:
    """The column `update` where it counts updates; a mark says 1 on rows that moved weights, else 0."""
    column = next((column for column in table.header if name_of(column) == "update"), None)
    if column is None or any(map(_numbers_rows, table.header)):
        return None
    place = table.header.index(column)
    counts = [count for _, cells in table.rows if (count := whole(cells[place])) is not None]
    grows = all(b > a for a, b in itertools.pairwise(counts))
    return column if grows and len(counts) == len(table.rows) and counts[-1] > 1 else None


def _plain(column: str) -> str:
    return column.strip().lower().replace(" ", "_")


def _numbers_rows(column: str) -> bool:
    return _plain(column) in _STEPS


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """The header, and the rows with the lines they stand on; every row has as many cells as the header."""

    path: Path
    header: list[str]
    rows: list[tuple[int, list[str]]]


def read_table(path: Path, notes: list[str]) -> Table:
    """The file's cells. Raises SpecError for what is no table: empty, binary, ragged, nothing below the header."""
    if not is_text(path):
        raise SpecError("is not text, so no table" if head(path) else "is empty", file=path)
    lines = _lines(path, notes)
    first = next(lines, "")
    reader = csv.reader(itertools.chain([first], lines), delimiter=max(_DELIMITERS, key=first.count))
    try:
        header = [cell.strip() for cell in next(reader, [])]
        rows = [(reader.line_num, row) for row in itertools.islice(reader, _ROWS + 1) if any(map(str.strip, row))]
    except csv.Error as error:
        why = "a carriage return inside a line" if "new-line character" in str(error) else str(error)
        raise SpecError(f"is no table: {why} (is it a log? give it another ending than .csv)", file=path) from None
    if not 2 <= len(header) <= _COLUMNS:
        raise SpecError(f"a table has 2 to {_COLUMNS} columns by comma, ; or tab; this has {len(header)}", file=path)
    if not rows or len(rows) > _ROWS:
        raise SpecError(f"a table has 1 to {_ROWS} rows below its header; this has {len(rows) or 'none'}", file=path)
    if len(set(header)) < len(header):
        double = next(name for name in header if header.count(name) > 1)
        raise SpecError(f"has two columns called {double!r}", file=path)
    for line, row in rows:
        if len(row) != len(header):
            raise SpecError(f"has {len(row)} cells, the header has {len(header)}", file=path, line=line)
    return Table(path=path, header=header, rows=rows)


def header(path: Path) -> list[str]:
    """The cells of the first line; [] for what is not text. Raises StorageError, and SpecError for an endless line."""
    first = next(_lines(path, []), "") if is_text(path) else ""
    with suppress(csv.Error):
        return [cell.strip() for cell in next(csv.reader([first], delimiter=max(_DELIMITERS, key=first.count)), [])]
    return []


def cell(text: str, table: Table, line: int, place: int) -> tuple[bool, float | None]:
    """(whether the cell says something, the number; None for NaN and infinities). 12% is 0.12.

    Raises SpecError for text.
    """
    word = text.strip()
    if word.lower() in _EMPTY:
        return False, None
    value = _number(word)
    if value is None:
        why = "write a decimal point" if _DECIMAL_COMMA.fullmatch(word) else "a number belongs there, or nothing"
        shown = word[:_LONG_CELL] + ("…" if len(word) > _LONG_CELL else "")
        raise SpecError(f"{table.header[place]}: got {shown!r}; {why}", file=table.path, line=line)
    return True, value if math.isfinite(value) else None


def whole(text: str) -> int | None:
    """The whole number of at least 0 in a cell; None for anything else."""
    value = _number(text.strip())
    return int(value) if value is not None and value.is_integer() and 0 <= value < 1e15 else None


def _lines(path: Path, notes: list[str]) -> Iterator[str]:
    """The file's lines with their ends. Raises SpecError for one that is longer than a table's."""
    for line in text_lines(path, notes):
        if len(line.text) >= LONGEST:
            raise SpecError(f"is longer than {LONGEST} characters, so this is no table", file=path, line=line.number)
        yield line.text.replace("\0", "") + "\n"


def _number(word: str) -> float | None:
    """The number; a percentage as a fraction. None for text (`1_000`, which Python would take, is text)."""
    percent = _PERCENT.fullmatch(word)
    try:
        value = float((percent[1] if percent else word).replace("_", "x"))
    except ValueError:
        return None
    return value / 100 if percent else value
