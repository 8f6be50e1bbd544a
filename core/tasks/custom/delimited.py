"""CSV -> rows: a header line, commas, quotes as spreadsheets write them. Columns of numbers become numbers."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from core.errors import SpecError
from core.tasks.custom.jsonl import UTF16
from core.tasks.custom.row import Row

FIELD_LIMIT = 64 * 2**20  # characters of one cell
_INTEGER = re.compile(r"-?(0|[1-9]\d{0,17})")
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][-+]?\d{1,2})?")
_BOOLEANS = {"true": True, "false": False, "True": True, "False": False}


def read(path: Path) -> list[Row]:
    """The rows of a file. An empty cell is null; a column is numbers, or true and false, where all its cells are.

    `007` keeps its column text. Raises SpecError naming the line, OSError.
    """
    lines = list(_lines(path))
    if not lines:
        raise SpecError("is empty; a CSV file has a header line, then rows", file=path)
    (first, header), *body = lines
    _check_header(path, first, header)
    for number, cells in body:
        if len(cells) != len(header):
            what = f"got {len(cells)} cell(s), the header has {len(header)}"
            raise SpecError(f"{what}; a cell with commas or line ends stands in quotes", file=path, line=number)
    columns = [_typed([cells[index] for _, cells in body]) for index in range(len(header))]
    return [
        Row(values=dict(zip(header, values, strict=True)), line=number, file=path)
        for (number, _), *values in zip(body, *columns, strict=True)
    ]


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """(line, cells) of everything that is not blank."""
    text = _decoded(path, path.read_bytes())
    if "\x00" in text:
        line = text.count("\n", 0, text.index("\x00")) + 1
        raise SpecError("is not CSV text: it holds a zero byte", file=path, line=line)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)  # newline: a line ends as CSV says, not Unicode
    before, start = csv.field_size_limit(FIELD_LIMIT), 1
    try:
        for cells in reader:
            if any(cells):
                yield start, cells
            start = reader.line_num + 1
    except csv.Error as error:
        raise SpecError(f"is not CSV: {error}", file=path, line=start) from None
    finally:
        csv.field_size_limit(before)


def _decoded(path: Path, data: bytes) -> str:
    if data[:2] in UTF16:
        raise SpecError("is UTF-16 text; save it as UTF-8", file=path)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        begin = data.rfind(b"\n", 0, error.start) + 1
        line = data.count(b"\n", 0, error.start) + 1
        what = f"is not UTF-8 text: byte {error.start - begin + 1} of the line is 0x{data[error.start]:02x}"
        raise SpecError(what, file=path, line=line) from None


def _check_header(path: Path, line: int, header: Sequence[str]) -> None:
    twice = [name for name, count in Counter(header).items() if count > 1]
    if twice:
        raise SpecError(f"two columns are called {twice[0]!r}; each needs a name of its own", file=path, line=line)
    if "" in header:
        raise SpecError(f"column {header.index('') + 1} of the header has no name", file=path, line=line)
    other = next((mark for mark in (";", "\t") if len(header) == 1 and mark in header[0]), None)
    if other is not None:
        raise SpecError(f"the header has one column, with {other!r} in it; cells are parted by commas", file=path)


def _typed(cells: Sequence[str]) -> list[object]:
    """The cells of a column; null where empty."""
    filled = [cell for cell in cells if cell]
    kinds: list[tuple[Callable[[str], object], Callable[[str], object]]] = [
        (_INTEGER.fullmatch, int),
        (_NUMBER.fullmatch, float),
        (_BOOLEANS.__contains__, _BOOLEANS.__getitem__),
    ]
    for fits, made in kinds:
        if filled and all(fits(cell) for cell in filled):
            return [made(cell) if cell else None for cell in cells]
    return [cell or None for cell in cells]
