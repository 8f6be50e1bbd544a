"""JSON lines -> rows: one object on each line; a .json file may also hold one list of objects.

A key that stands twice in an object is refused, as in YAML: JSON would let the last one win without a word.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core.errors import SpecError
from core.tasks.custom.row import Row, plain

BOM = b"\xef\xbb\xbf"
UTF16 = (b"\xff\xfe", b"\xfe\xff")


def read(path: Path) -> list[Row]:
    """The rows of a file; blank lines are left out. Raises SpecError naming the line, OSError."""
    with path.open("rb") as stream:
        start = stream.read(3)
        if start[:2] in UTF16:
            raise SpecError("is UTF-16 text; save it as UTF-8", file=path)
        stream.seek(len(BOM) if start == BOM else 0)
        if path.suffix.lower() == ".json" and _is_list(path):
            return _listed(path, stream.read())
        return [
            Row(values=_object(path, number, line.rstrip()), line=number, file=path)
            for number, line in enumerate(stream, 1)
            if line.strip()
        ]


def _is_list(path: Path) -> bool:
    with path.open("rb") as stream:
        return stream.read(4096).removeprefix(BOM).lstrip()[:1] == b"["


def _listed(path: Path, data: bytes) -> list[Row]:
    items = _parsed(path, None, data)
    rows = []
    for number, item in enumerate(items, 1):
        row = Row(values={}, line=number, file=path, counted=True)
        rows.append(row.with_values(_checked(row, item)))
    return rows


def _object(path: Path, number: int, line: bytes) -> Mapping[str, object]:
    return _checked(Row(values={}, line=number, file=path), _parsed(path, number, line))


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


class _TwiceError(Exception):
    """A key that stands twice in an object."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these pairs."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise _TwiceError(next(key for index, key in enumerate(keys) if key in keys[:index]))
    return found


def _parsed(path: Path, number: int | None, data: bytes) -> Any:
    """What the text says. Raises SpecError: no UTF-8 (with the byte), no JSON (with the column), a key twice."""
    try:
        return json.loads(data.decode(), object_pairs_hook=_once)
    except _TwiceError as error:
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
