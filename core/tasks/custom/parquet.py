"""Parquet -> rows, through pyarrow."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from core.errors import SpecError
from core.tasks.custom.row import Row, plain


def read(path: Path) -> list[Row]:
    """The rows of a file; they are counted from 1. Raises SpecError, OSError."""
    import pyarrow
    from pyarrow import parquet

    try:
        table = parquet.ParquetFile(path).read()  # not read_table: a folder key=value above it would become a column
        twice = [name for name, count in Counter(table.column_names).items() if count > 1]
        found = [] if twice else table.to_pylist()
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        if isinstance(error, PermissionError):
            raise
        reason = str(error).strip().splitlines()[0].rstrip(".")
        raise SpecError(f"is no Parquet file that can be read: {reason}", file=path) from None
    if twice:
        raise SpecError(f"two columns are called {twice[0]!r}; each needs a name of its own", file=path)
    return [counted(values, number, path) for number, values in enumerate(found, 1)]


def counted(values: dict[str, object], number: int, file: Path | None) -> Row:
    """The row of that number, its values plain. Raises SpecError naming row and column."""
    row = Row(values={}, line=number, file=file, counted=True)
    made: dict[str, object] = {}
    for name, value in values.items():
        try:
            made[name] = plain(value)
        except ValueError as error:
            raise row.refused(f"column {name!r} holds {error}") from None
    return row.with_values(made)
