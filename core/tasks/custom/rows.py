"""DataSpec -> rows: plain values by column, each row with its place for messages.

Here: which reader a file's ending asks for, and what is true of all of them. Not here: the formats (jsonl, delimited,
parquet, hub), and what the columns mean (prompts).
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from random import Random

from core.config.task import DataSpec
from core.errors import SpecError
from core.tasks.custom import delimited, hub, jsonl, parquet
from core.tasks.custom.row import Row

READERS: dict[str, Callable[[Path], list[Row]]] = {
    ".jsonl": jsonl.read,
    ".json": jsonl.read,
    ".csv": delimited.read,
    ".parquet": parquet.read,
}


def rows_of(data: DataSpec, seed: int) -> Sequence[Row]:
    """The rows, every one with every column (null where it has none), `max_rows` of them drawn by `seed`.

    Raises SpecError naming file and line, or what the hub said.
    """
    rows = _of_hub(data) if data.path is None else _of_file(Path(os.path.expanduser(data.path)))
    if data.max_rows is None or data.max_rows >= len(rows):
        return rows
    drawn = Random(f"custom rows/{seed}").sample(range(len(rows)), data.max_rows)
    return [rows[index] for index in sorted(drawn)]


def file_of(data: DataSpec) -> Path | None:
    """The file that is read, for messages; None for a dataset of the hub."""
    return None if data.path is None else Path(os.path.expanduser(data.path))


def no_column(name: str, columns: Iterable[str]) -> str:
    """`no column 'qestion'; did you mean 'question'? There are: question, answer`."""
    known = list(columns)
    near = difflib.get_close_matches(name, known, n=1) or [one for one in known if one.lower() == name.lower()]
    hint = f"did you mean {near[0]!r}? " if near else ""
    shown = ", ".join(known[:20]) + (f" and {len(known) - 20} more" if len(known) > 20 else "")
    return f"no column {name!r}; {hint}There are: {shown}"


def _of_file(path: Path) -> Sequence[Row]:
    kinds = ", ".join(READERS)
    if not path.is_file():
        what = "is a directory" if path.is_dir() else "is a special file" if path.exists() else "there is no such file"
        raise SpecError(f"{what}; data are a file that ends in one of {kinds}{_beside(path)}", file=path)
    if path.suffix.lower() not in READERS:
        got = f"a file that ends in {path.suffix!r}" if path.suffix else "a file without an ending"
        raise SpecError(f"got {got}; allowed: {kinds}", file=path)
    try:
        stat = path.stat()
        return _read(path, (stat.st_mtime_ns, stat.st_size, stat.st_ino))
    except OSError as error:
        raise SpecError(f"cannot be read: {error.strerror or error}", file=path) from None


@lru_cache(maxsize=4)  # a spec is built once for each of its profiles, a sweep's at each of its values
def _read(path: Path, stamp: tuple[int, int, int]) -> Sequence[Row]:  # noqa: ARG001  a changed file is another one
    return _completed(READERS[path.suffix.lower()](path), f"{path}: ")


def _of_hub(data: DataSpec) -> Sequence[Row]:
    assert data.hub is not None
    return _completed(hub.read(data.hub, data.config, data.split, data.revision), f"{data.hub}: ")


def _completed(rows: list[Row], where: str) -> Sequence[Row]:
    """Every row with every column there is."""
    if not rows:
        raise SpecError(f"{where}has no rows; at least one is needed")
    columns = dict.fromkeys(name for row in rows for name in row.values)
    blank: dict[str, object] = dict.fromkeys(columns)
    if all(len(row.values) == len(columns) for row in rows):
        return rows
    return [row.with_values({**blank, **row.values}) for row in rows]


def _beside(path: Path) -> str:
    """The file of nearly the same name that is there instead."""
    try:
        names = [one.name for one in path.parent.iterdir() if one.suffix.lower() in READERS and one != path]
    except OSError:
        return f"; there is no folder {path.parent} either"
    stems = {Path(name).stem: name for name in names}
    near = difflib.get_close_matches(path.stem, stems, n=1)
    return f"; did you mean {stems[near[0]]}?" if near else ""
