"""The cells of a CSV and the numbers in them: bounded, and one clear error for what is no table."""

from __future__ import annotations

import csv
import itertools
import math
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from core.errors import SpecError
from grpoctl.diagnose.readers.text import LONGEST, head, is_text, text_lines

_DELIMITERS = ",;\t"
_COLUMNS = 2000
_ROWS = 1_000_000
_LONG_CELL = 40  # characters of a cell that an error shows
_PERCENT = re.compile(r"(.+?)\s*[%\uff05]")
_DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d+\s*%?")
_EMPTY = frozenset({"", "-", "–", "—", "na", "n/a", "null", "none"})


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
