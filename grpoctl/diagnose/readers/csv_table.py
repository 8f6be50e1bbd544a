"""A CSV of metrics, one row a step (or an epoch) -> a case. Columns are named by --map, or as ours or TRL's are.

What is not here: the cells and the runs that they are of (csv_cells), what a spreadsheet adds to them (csv_sheet), and
decimal commas in a table by commas (write points).
"""

from __future__ import annotations

import difflib
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from core.errors import GrpoError, SpecError
from core.health.case import Case, Settings
from core.health.finding import StepTable
from grpoctl.diagnose.readers.attempts import COUNTS, newest_attempt
from grpoctl.diagnose.readers.base import SOME_WRONG, TOO_SMALL, Reading, Source, impossible, without_absent
from grpoctl.diagnose.readers.csv_cells import (
    ABOVE_SHARES,
    EMPTY,
    NUMBERS_ROWS,
    STEP,
    Table,
    cell,
    has_commas,
    header,
    is_long,
    named_anywhere,
    number,
    numbers_rows,
    of_one_run,
    plain,
    plain_names,
    tables_by_run,
    whole,
)
from grpoctl.diagnose.readers.csv_sheet import columns_at_the_top, read_table
from grpoctl.diagnose.readers.log_settings import stated_settings
from grpoctl.diagnose.readers.metric_files import logged_values
from grpoctl.diagnose.readers.metric_names import in_our_sense, metrics_of, name_of
from grpoctl.diagnose.readers.several_runs import NoMetricError, read_each
from grpoctl.diagnose.readers.trainer_log import bounded_by, slices_of, span_of, trains

_SUFFIXES = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
_BY_ORDER = "the table has no column of whole steps: a row is counted as one step"
_NAMED = 6  # columns that a note names
_OF_PERCENT = re.compile(r"[%\uff05]|\b(?:pct|percent)\b", re.IGNORECASE)  # a column's name
_ENTROPY_LOSS = ("entropy_loss", "entropy loss")
_WORD = re.compile(r"[a-z]+@?")
_ACCURACIES = frozenset({"acc", "accuracy", "em", "pass@"})
_RATES = frozenset({"rate", "ratio", "share", "frac", "fraction"})
_REWARDS = frozenset({"reward", "rewards", "rew", "score", "scores", "return"})
_SHARES_BY_NAME = ("rewards/", "eval/slices/")  # that have no bounds
_LEAST_PERCENT, _USUAL_PERCENT = 5.5, 1.5  # the greatest is more, and most: weights go to 5, beside small numbers
_GROUP = 16  # completions of a prompt
_BEGINS_A_NUMBER = re.compile(r"[-+~]?[.,]?\d")
_MARKS = ("step", "update")
_OF_OURS = frozenset({"hparams", "params", "config", "args", "actor", "trainer", "grpo", "actor_rollout_ref"})
_INSIDE = frozenset({"run", "algorithm", "data", "model", "policy", "optim", "optimizer", "rollout", "sampling_params"})
_EXACT = (*_MARKS, *TOO_SMALL)
_ROUND_TO, _SHOWN_BY = range(1, 6), 5  # decimals; rows that show that there are no more


class _Csv:
    """A table of text: comma, semicolon or tab between cells."""

    name = "csv"
    looks_for = "a table of metrics"

    def knows(self, source: Source) -> bool:
        """By its name, by its cells, or because columns were mapped."""
        if source.path is None or not source.path.is_file():
            return False
        if source.path.name.lower().endswith(_SUFFIXES) or logged_values(source.path) is not None:
            return True
        with suppress(GrpoError):
            named = header(source.path)
            if source.columns:
                return not source.columns.keys().isdisjoint(named)
            of_metrics = is_long(named) or any(name_of(column) not in (None, *_MARKS) for column in plain_names(named))
            return of_metrics and has_commas(source.path)
        return False

    def read(self, source: Source) -> Reading:
        """Rows by step; a cell that is empty is unknown, one that is NaN or infinite was measured and is no number."""
        assert source.path is not None  # knows() came first
        notes: list[str] = []
        table = logged_values(source.path) or read_table(source.path, notes)
        by_run = tables_by_run(table, source)
        if len(by_run) > 1:
            _check_columns(source, table.path, named_anywhere(table))
        runs = [run for run, _ in by_run]
        return read_each(runs, lambda at: self._of_run(by_run[at][1], source, several=len(runs) > 1), notes)

    def _of_run(self, lines: Table, source: Source, *, several: bool) -> Reading:
        """What the file says of one run; of several each may have its own columns."""
        notes: list[str] = []
        table = of_one_run(lines, source, notes)
        if not several:
            _check_columns(source, table.path, table.header)
        names = _metrics_of_columns(table, source)
        rows, more = _rows(table, names) if table.rows else ([], [])
        if several and not any(row.keys() - {*_MARKS} for row in rows):
            raise NoMetricError("tells nothing", file=table.path)
        if lost := _rounded_away(rows):
            rows = [{name: value for name, value in row.items() if value != 0 or name not in lost} for row in rows]
            more.append(f"a {' or '.join(lost)} of 0 may be a small one: the table's numbers are rounded")
        more += _asides(table, names, source)
        span = span_of(rows)
        if span > 1:
            more.append(f"rows are {span} steps apart: each is taken for the mean of so many")
        case = Case(rows=rows, averaged_over=span, settings=Settings.stated(_settings(table, names)))
        return Reading(case=case, kind=self.name, source=str(table.path), notes=(*more, *notes))


READER = _Csv()


def has_known_header(source: Source) -> bool:
    """Whether the file's header names a metric or numbers the rows: then it is a table, whatever its cells are."""
    with suppress(GrpoError):
        if source.path is None or logged_values(source.path) is not None:
            return source.path is not None
        columns = plain_names(columns_at_the_top(source.path))
        return is_long(columns) or (
            len(columns) > 1 and any(name_of(column) is not None or numbers_rows(column) for column in columns)
        )
    return False


def _check_columns(source: Source, path: Path, there: Sequence[str]) -> None:
    """Raises SpecError for a column that the user maps and that is not there."""
    for column in source.columns if not source.live else ():
        if column not in there:
            near = difflib.get_close_matches(column, there, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(there[:20])}"
            raise SpecError(f"has no column {column!r}; {hint}", file=path)


def _metrics_of_columns(table: Table, source: Source) -> dict[str, str]:
    """Column -> metric: as the user maps it, else by the column's own name. Raises SpecError."""
    header, path = table.header, table.path
    names = {column: metric for column, metric in source.columns.items() if column in header}
    counted = _counted_updates(table)
    marks = [
        (column, own)
        for column in header
        if (own := name_of(column)) == "update" and column != counted and not _counts_up(table, column)
    ]
    divisors = _divisors(table)
    fitting = tuple(
        column for column in header if column == (own := name_of(column)) or _may_be(table, column, own, divisors)
    )
    for column, own in [*metrics_of(fitting), *marks]:
        if column not in names and not numbers_rows(column) and own not in names.values():
            names[column] = own
    words = {column for column in names if column not in source.columns and _of_words(table, column)}
    numbers = {metric for column, metric in names.items() if column not in words}
    if numbers - {STEP} or {names[column] for column in words} == {"stage"}:
        names = {column: metric for column, metric in names.items() if column not in words}
    for metric, count in Counter(names.values()).items():
        if count > 1:
            raise SpecError(f"two columns are mapped to {metric}", file=path)
    if not set(names.values()) - {STEP}:
        some = ", ".join(header[:8])
        raise NoMetricError(
            f"no column is known ({some}); {source.how_to_map} names one, e.g. reward/mean, loss, kl", file=path
        )
    return names


def _asides(table: Table, names: Mapping[str, str], source: Source) -> list[str]:
    """Notes on columns: those that are left out, and those that are taken to be in percent though none says so."""
    own = _counted_updates(table)
    aside = [column for column in table.header if column and column not in (*names, own)]
    left = [column for column in aside if not numbers_rows(column) or STEP in names.values()]
    divisors = _divisors(table)
    notes = [
        f"{column} is left out: as {metric} it has values that are none"
        for column in left
        if (metric := name_of(column)) not in (None, *_MARKS) and not _may_be(table, column, metric, divisors)
    ]
    notes += [
        f"{column} has numbers above 1: it is taken to be in percent"
        for place, column in enumerate(table.header)
        if column in names and divisors.get(place, 1.0) > 1 and not _OF_PERCENT.search(column)
    ]
    if left:
        tail = f" and {len(left) - _NAMED} more" if len(left) > _NAMED else ""
        notes.append(f"columns left out ({', '.join(left[:_NAMED])}{tail}): {source.how_to_map} takes one in")
    return notes


def _settings(table: Table, metrics: Collection[str]) -> dict[str, Any]:
    """What columns say of the configuration: those that are no metric and have one number in all rows.

    Of two that call different numbers the same (`lr`, `config/lr`) nobody knows which it is.
    """
    stated: dict[str, set[float]] = {}
    for place, column in enumerate(table.header):
        told = {cells[place].strip() for _, cells in table.rows}
        value = number(told.pop()) if len(told) == 1 else None
        name = _setting_of(column)
        if name and value is not None and math.isfinite(value) and (column not in metrics or len(table.rows) == 1):
            stated.setdefault(name, set()).add(int(value) if value.is_integer() else value)
    return stated_settings({name: told.pop() for name, told in stated.items() if len(told) == 1})


def _setting_of(column: str) -> str:
    """The last part of a column's name where the parts before are of the run's configuration, or of the policy in it.

    "" for another's: a critic has a learning rate, too, and a tool a temperature.
    """
    *path, name = re.split(r"[./]", plain(column))
    is_ours = not _OF_OURS.isdisjoint(path) and {*path} <= _OF_OURS | _INSIDE
    return name if is_ours or not path else ""


def _may_be(table: Table, column: str, metric: str | None, divisors: Mapping[int, float]) -> bool:
    """Whether the column's numbers are ones that the metric may have: a count of dead groups is no share of them.

    A few that it cannot have are mistakes, and are told with their lines.
    """
    if metric is None:
        return True
    place = table.header.index(column)
    told = [number(cells[place].strip()) for _, cells in table.rows]
    numbers = [value for value in told if value is not None and not math.isnan(value)]
    ours = [in_our_sense(column, value / divisors.get(place, 1.0)) for value in numbers]
    return sum(impossible(metric, value) is not None for value in ours) <= SOME_WRONG * len(ours)


def _of_words(table: Table, column: str) -> bool:
    """Whether the column's cells are words: a run's name, its stage."""
    place = table.header.index(column)
    cells = [word for _, row in table.rows if (word := row[place].strip()).lower() not in EMPTY]
    return bool(cells) and all(number(word) is None and not _BEGINS_A_NUMBER.match(word) for word in cells)


def _rows(table: Table, names: Mapping[str, str]) -> tuple[StepTable, list[str]]:
    """The newest attempt's rows by step, and what was taken for granted. Of what comes twice the last stands."""
    numbering = next((column for column, metric in names.items() if metric == STEP), None)
    steps, how = _own_steps(table) if numbering is None else _mapped_steps(table, numbering)
    rows, absent = _values(table, names)
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
    notes = [how, *absent, *(["the table counts from 0: its first row is step 1"] if counts_from_0 else []), *attempts]
    if len(by_step) < len(rows):
        notes.append(f"{len(rows) - len(by_step)} rows repeat a step: of what both tell the last one stands")
    if "update" not in names.values():
        notes.append("the table does not say which steps moved weights: each row with a metric of training is taken to")
    return [by_step[step] for step in sorted(by_step)], notes


def _values(table: Table, names: Mapping[str, str]) -> tuple[list[dict[str, float | None]], list[str]]:
    """The metrics of each row, in their order, and a note on NaN where nothing was logged."""
    places = [(table.header.index(column), metric) for column, metric in names.items() if metric != STEP]
    rows: list[dict[str, float | None]] = []
    divisors = _divisors(table)
    for line, cells in table.rows:
        values = {
            metric: _value(cells[place], table, (line, place), metric, divisors=divisors) for place, metric in places
        }
        rows.append({metric: value for metric, (known, value) in values.items() if known})
    told, absent = without_absent(rows)
    for row in told:
        if trains(row):
            row.setdefault("update", 1.0)
    return [row | bounded_by(row, slices_of(row)) for row in told], absent


def _counts(table: Table) -> list[dict[str, float | None]]:
    """What each row says of its place in the run: steps, epochs, tokens."""
    named = [(place, plain(column)) for place, column in enumerate(table.header)]
    counts = [(place, name) for place, name in named if name in COUNTS]
    return [{name: number(cells[place].strip()) for place, name in counts} for _, cells in table.rows]


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
    return all(row[name] == value for name, value in other.items() if name in row and name not in _MARKS)


def _never_falls(values: Sequence[float | None]) -> bool:
    """Whether a count goes on over all rows, and to more than one number."""
    known = [value for value in values if value is not None]
    return len(known) == len(values) and len({*known}) > 1 and all(a <= b for a, b in pairwise(known))


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


def _divisors(table: Table) -> dict[int, float]:
    """What the numbers of some columns are divided by: of those in percent, and of an entropy's loss (minus it)."""
    divisors: dict[int, float] = {}
    for place, column in enumerate(table.header):
        if _OF_PERCENT.search(column):
            is_other, divisor = any(value > ABOVE_SHARES for value in _numbers(table, place)), 100.0
        elif column.lower().endswith(_ENTROPY_LOSS):
            is_other, divisor = max(_numbers(table, place), default=1.0) < 0, -1.0
        else:
            is_other, divisor = _is_unsaid_percent(table, place), 100.0
        if is_other:
            divisors[place] = divisor
    return divisors


def _is_unsaid_percent(table: Table, place: int) -> bool:
    """Whether a column that is called a share (`eval_acc`, `success rate`) has numbers of percent, and no counts.

    Numbers with decimals are no counts, nor are accuracies that are more than a group has. Shares may be rounded to a
    little more than 1, and an accuracy may have a weight: in percent most numbers are more than either.
    """
    metric = name_of(table.header[place])
    words = frozenset(_WORD.findall(table.header[place].lower()))
    if metric is None or words.isdisjoint(_ACCURACIES | _RATES) or not words.isdisjoint(_REWARDS):
        return False
    if impossible(metric, 100.0) is None and not metric.startswith(_SHARES_BY_NAME):
        return False
    numbers = [value for value in _numbers(table, place) if value]
    most, least = max(numbers, default=0.0), min(numbers, default=0.0)
    if least < 0 or not _LEAST_PERCENT < most <= 100 or median(numbers) <= _USUAL_PERCENT:
        return False
    if most > _GROUP and not words.isdisjoint(_ACCURACIES):
        return True
    return any(value > 1 and not value.is_integer() for value in numbers)


def _numbers(table: Table, place: int) -> list[float]:
    """The finite numbers of a column."""
    told = (number(cells[place].strip()) for _, cells in table.rows)
    return [value for value in told if value is not None and math.isfinite(value)]


def _value(
    text: str, table: Table, at: tuple[int, int], metric: str, *, divisors: Mapping[int, float]
) -> tuple[bool, float | None]:
    """As cell(). Raises SpecError for a number that the metric cannot have, too."""
    line, place = at
    column = table.header[place]
    known, value = cell(text, table, line, place)
    if value is not None:
        value = in_our_sense(column, value / divisors.get(place, 1.0))
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
    columns = {plain(column): place for place, column in enumerate(table.header)}
    numbering: dict[str, list[int]] = {}
    for name in filter(columns.__contains__, NUMBERS_ROWS):
        if (known := _steps_in(table, columns[name])) is not None:
            numbering[table.header[columns[name]]] = known
    once = [column for column, steps in numbering.items() if len({*steps}) == len(steps)]  # rather than again and again
    if numbering:
        column = [*once, *numbering][0]
        gaps = any(not cells[table.header.index(column)].strip() for _, cells in table.rows)
        more = "; a row of an evaluation that has none there is of the step before" if gaps else ""
        return numbering[column], f"rows are numbered by the column {column}{more}"
    if (counted := _counted_updates(table)) is not None:
        place = table.header.index(counted)
        return [whole(cells[place]) or 0 for _, cells in table.rows], f"rows are numbered by the column {counted}"
    return list(range(1, len(table.rows) + 1)), _BY_ORDER


def _steps_in(table: Table, place: int) -> list[int] | None:
    """The whole numbers of a column; None where one is missing, but for an evaluation's row: it is of the step before.

    Stable-Baselines3 counts its iterations in rows of training alone.
    """
    of_training = _places_of_training(table) if any(not cells[place].strip() for _, cells in table.rows) else []
    steps: list[int] = []
    for _, cells in table.rows:
        step = whole(cells[place])
        if step is None and steps and of_training and not any(cells[at].strip() for at in (place, *of_training)):
            step = steps[-1]
        if step is None:
            return None
        steps.append(step)
    return steps


def _places_of_training(table: Table) -> list[int]:
    """The columns of metrics that are no evaluation's."""
    named = [(at, name_of(column)) for at, column in enumerate(table.header)]
    return [at for at, metric in named if metric not in (None, *_MARKS) and not str(metric).startswith("eval/")]


def _counted_updates(table: Table) -> str | None:
    """The column `update` where it counts updates; a mark says 1 on rows that moved weights, else 0."""
    column = next((column for column in table.header if name_of(column) == "update"), None)
    if column is None or any(map(numbers_rows, table.header)):
        return None
    return column if _counts_up(table, column, fewest=1) else None


def _counts_up(table: Table, column: str, fewest: int = 2) -> bool:
    """Whether all rows of a table that has so many have whole numbers in a column, which grow beyond 1."""
    place = table.header.index(column)
    counts = [count for _, cells in table.rows if (count := whole(cells[place])) is not None]
    grows = all(b > a for a, b in pairwise(counts))
    return grows and fewest <= len(counts) == len(table.rows) and counts[-1] > 1
