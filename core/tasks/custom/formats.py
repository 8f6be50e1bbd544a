"""Files and hub datasets -> rows: one reader for each format, and how a message names a row.

`read_jsonl`: one object on each line; a .json file may also hold one list of objects. A key that stands twice in an
object is refused, as in YAML: JSON would let the last one win without a word. `read_csv`: a header line, commas, quotes
as spreadsheets write them; columns of numbers become numbers. `read_parquet`: through pyarrow. `read_hub`: through
`datasets`, from its cache where the hub cannot be reached.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import math
import os
import re
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from core.errors import SpecError
from core.models.messages import log_through_root
from core.models.sources import hub


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """Values by column: text, numbers, booleans, null, and lists and mappings of them.

    `line` counts from 1 in a text file; elsewhere it is the number of the row, and `counted` says so.
    """

    values: Mapping[str, object]
    line: int
    file: Path | None = None
    counted: bool = False

    def refused(self, message: str, key: str | None = None) -> SpecError:
        """The error that names this row."""
        if self.counted:
            return SpecError(f"row {self.line}: {message}", file=self.file, key=key)
        return SpecError(message, file=self.file, line=self.line, key=key)

    def with_values(self, values: Mapping[str, object]) -> Row:
        """The same row with these values."""
        return replace(self, values=values)


def plain(value: object) -> object:
    """The value as JSON can hold it: NaN is null, dates are ISO text, bytes are text or else base64.

    Raises ValueError for an infinite number, and for text that is no Unicode (a lone surrogate).
    """
    match value:
        case None | bool() | int():
            made: object = value
        case str():
            made = _text(value)
        case float():
            made = _finite(value)
        case bytes():
            made = _bytes_as_text(value)
        case Mapping():
            made = {str(key): plain(below) for key, below in value.items()}
        case list() | tuple():
            made = [plain(item) for item in value]
        case _:
            iso = getattr(value, "isoformat", None)
            made = str(value) if iso is None else str(iso())
    return made


def _finite(value: float) -> float | None:
    if math.isinf(value):
        raise ValueError("an infinite number; allowed: finite ones, null where there is none")
    return None if math.isnan(value) else value


def _text(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"a text with half a character (U+{ord(value[error.start]):04X}), no Unicode") from None
    return value


def _bytes_as_text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return b64encode(value).decode()


BOM = b"\xef\xbb\xbf"
UTF16 = (b"\xff\xfe", b"\xfe\xff")


def read_jsonl(path: Path) -> list[Row]:
    """The rows of a file; blank lines are left out. Raises SpecError naming the line, OSError."""
    with path.open("rb") as stream:
        start = stream.read(3)
        if start[:2] in UTF16:
            raise SpecError("is UTF-16 text; save it as UTF-8", file=path)
        stream.seek(len(BOM) if start == BOM else 0)
        if path.suffix.lower() == ".json" and _is_list(path):
            return _from_list(path, stream.read())
        return [
            Row(values=_object(path, number, line.rstrip()), line=number, file=path)
            for number, line in enumerate(stream, 1)
            if line.strip()
        ]


def _is_list(path: Path) -> bool:
    with path.open("rb") as stream:
        return stream.read(4096).removeprefix(BOM).lstrip()[:1] == b"["


def _from_list(path: Path, data: bytes) -> list[Row]:
    items = _parse_json(path, None, data)
    rows = []
    for number, item in enumerate(items, 1):
        row = Row(values={}, line=number, file=path, counted=True)
        rows.append(row.with_values(_checked(row, item)))
    return rows


def _object(path: Path, number: int, line: bytes) -> Mapping[str, object]:
    return _checked(Row(values={}, line=number, file=path), _parse_json(path, number, line))


def _checked(row: Row, item: object) -> Mapping[str, object]:
    if not isinstance(item, dict):
        kind = "a list" if isinstance(item, list) else "null" if item is None else f"a {type(item).__name__}"
        raise row.refused(f'got {kind}; a row is a JSON object, e.g. {{"question": "1+1", "answer": "2"}}')
    values: dict[str, object] = {}
    for name, value in item.items():
        try:
            values[str(plain(name))] = plain(value)
        except ValueError as error:
            raise row.refused(f"column {name!r} holds {error}".encode("utf-8", "replace").decode()) from None
        except RecursionError:
            raise row.refused(f"column {name!r} is nested too deeply") from None
    return values


class _DuplicateKeyError(Exception):
    """A key that stands twice in an object."""


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these pairs."""
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        keys = [key for key, _ in pairs]
        raise _DuplicateKeyError(next(key for index, key in enumerate(keys) if key in keys[:index]))
    return mapping


def _parse_json(path: Path, number: int | None, data: bytes) -> Any:
    """What the text says. Raises SpecError: no UTF-8 (with the byte), no JSON (with the column), a key twice."""
    try:
        return json.loads(data.decode(), object_pairs_hook=_without_duplicates)
    except _DuplicateKeyError as error:
        raise SpecError(f"duplicate key {error.args[0]!r}: leave one of them", file=path, line=number) from None
    except UnicodeDecodeError as error:
        line = number if number is not None else data.count(b"\n", 0, error.start) + 1
        at = error.start - (data.rfind(b"\n", 0, error.start) + 1) + 1
        what = f"is not UTF-8 text: byte {at} of the line is 0x{data[error.start]:02x}"
        raise SpecError(what, file=path, line=line) from None
    except json.JSONDecodeError as error:
        line = number if number is not None else error.lineno
        raise SpecError(f"is not JSON: {error.msg} at column {error.colno}", file=path, line=line) from None
    except (ValueError, RecursionError) as error:
        what = "nested too deeply" if isinstance(error, RecursionError) else "a number of too many digits"
        raise SpecError(f"is not JSON that can be read: {what}", file=path, line=number) from None


FIELD_LIMIT = 64 * 2**20  # characters of one cell
_INTEGER = re.compile(r"-?(0|[1-9]\d{0,17})")
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][-+]?\d{1,2})?")
_BOOLEANS = {"true": True, "false": False, "True": True, "False": False}


def read_csv(path: Path) -> list[Row]:
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
    text = _utf8(path, path.read_bytes())
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


def _utf8(path: Path, data: bytes) -> str:
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


def read_parquet(path: Path) -> list[Row]:
    """The rows of a file; they are counted from 1. Raises SpecError, OSError."""
    import pyarrow
    from pyarrow import parquet

    try:
        table = parquet.ParquetFile(path).read()  # not read_table: a folder key=value above it would become a column
        twice = [name for name, count in Counter(table.column_names).items() if count > 1]
        rows = [] if twice else table.to_pylist()
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        if isinstance(error, PermissionError):
            raise
        reason = str(error).strip().splitlines()[0].rstrip(".")
        raise SpecError(f"is no Parquet file that can be read: {reason}", file=path) from None
    if twice:
        raise SpecError(f"two columns are called {twice[0]!r}; each needs a name of its own", file=path)
    return [numbered_row(values, number, path) for number, values in enumerate(rows, 1)]


def numbered_row(values: dict[str, object], number: int, file: Path | None) -> Row:
    """The row of that number, its values plain. Raises SpecError naming row and column."""
    row = Row(values={}, line=number, file=file, counted=True)
    made: dict[str, object] = {}
    for name, value in values.items():
        try:
            made[name] = plain(value)
        except ValueError as error:
            raise row.refused(f"column {name!r} holds {error}") from None
    return row.with_values(made)


ADVICE = "make the hub reachable once, or give a local file as task.data.path"


def read_hub(name: str, config: str | None, split: str, revision: str | None) -> list[Row]:
    """All rows of one split. Raises SpecError with what `datasets` said, on one line, and what would help."""
    with _quiet(), _offline_where_unreachable():
        import datasets

        log_through_root("datasets")
        try:
            dataset = datasets.load_dataset(name, config, split=split, revision=revision)
            rows: list[dict[str, object]] = list(dataset)
        except (OSError, ValueError, RuntimeError, KeyError, datasets.exceptions.DatasetsError) as error:
            reason = " ".join((str(error).strip() or type(error).__name__).split())
            reason = reason if len(reason) <= 300 else f"{reason[:300]}..."
            part = f" ({config})" if config is not None else ""
            raise SpecError(
                f"cannot load {name!r}{part}, split {split!r}, from the hub: {reason.rstrip('.')}; {ADVICE}",
                key="task.data",
            ) from None
    return [numbered_row(dict(values), number, Path(f"{name}[{split}]")) for number, values in enumerate(rows, 1)]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """No progress bars, the hub's included, and no analytics of another project's."""
    from huggingface_hub.utils.tqdm import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    before, bars_enabled = os.environ.get("HF_DATASETS_DISABLE_PROGRESS_BARS"), not are_progress_bars_disabled()
    os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
    disable_progress_bars()
    try:
        yield
    finally:
        if bars_enabled:
            enable_progress_bars()
        if before is None:
            os.environ.pop("HF_DATASETS_DISABLE_PROGRESS_BARS", None)


@contextlib.contextmanager
def _offline_where_unreachable() -> Iterator[None]:
    """The cache alone where the hub does not answer: `datasets` would try for half a minute, and say so each time."""
    if hub.why_unreachable() is None:
        yield
        return
    import datasets.config
    import huggingface_hub.constants

    settings: tuple[Any, ...] = (datasets.config, huggingface_hub.constants)
    before = [settings_of.HF_HUB_OFFLINE for settings_of in settings]
    for settings_of in settings:
        settings_of.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        for settings_of, value in zip(settings, before, strict=True):
            settings_of.HF_HUB_OFFLINE = value
