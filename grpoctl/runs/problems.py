"""RUN/problems.parquet: what each evaluation of a run came to, problem by problem and draw by draw.

While a run can still go on its rows are lines of problems.jsonl, which a resume truncates like every other file of
rows; where it comes to an end of its own the Parquet file is made of them, whole or not at all, and once the run says
that it is over they are removed. Equal rows give equal bytes, so a resumed run's file equals an undisturbed one's.

Columns: step (of the evaluation), place (of the problem among the held-out ones), draw, prompt_id, problem (equal
where id and inputs are), cluster (where the task has them: problems of one are not independent), reward (the expected
one; null where missing), valid, right (null where nobody knows), length and truncated (of tokens only),
rewards/<part>, measured/<name>, prompt and output as a person reads them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from core.errors import BusyError, StorageError
from grpoctl.files import Row, read_rows, remove, replace_bytes, storage_errors
from grpoctl.runs.run_dir import RunDir

if TYPE_CHECKING:
    import pyarrow

_TEXT = ("prompt_id", "problem", "cluster", "prompt", "output")
_WHOLE = ("step", "place", "draw", "length")
_FLAGS = ("valid", "right", "truncated")
_FIRST = ("step", "place", "draw", "prompt_id", "problem", "reward", "valid", "right", "length", "truncated")
_LAST = ("prompt", "output")
_CLUSTER = "cluster"  # a column where the task has clusters


def write_problems(run: RunDir) -> None:
    """Make problems.parquet of the rows there are, if any. Raises StorageError."""
    if not run.problem_rows.exists():
        return
    import pyarrow
    import pyarrow.parquet

    buffer = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(_table(read_rows(run.problem_rows)), buffer, compression="zstd")
    replace_bytes(run.problems, buffer.getvalue().to_pybytes())


def drop_rows(run: RunDir) -> None:
    """Remove the rows of a run that is over and whose Parquet file has them. Raises StorageError."""
    if run.problems.exists():
        remove(run.problem_rows)


def tidy(run: RunDir) -> None:
    """`drop_rows` for a run that was killed between its last status and that. Raises StorageError."""
    if run.problems.exists() and run.problem_rows.exists():
        with suppress(BusyError), run.hold():
            drop_rows(run)


def read_problems(run: RunDir) -> pyarrow.Table | None:
    """The rows of every evaluation so far as an Arrow table; None where they were not recorded (older runs).

    Raises StorageError for a damaged file.
    """
    import pyarrow
    import pyarrow.parquet

    if run.problem_rows.exists():  # the run has not come to an end of its own: the other file may be of an earlier one
        return _table(read_rows(run.problem_rows))
    if not run.problems.exists():
        return None
    try:
        with storage_errors("read", run.problems):
            return pyarrow.parquet.read_table(run.problems)
    except pyarrow.ArrowException as error:
        raise StorageError(f"{run.problems}: damaged ({str(error).splitlines()[0]}); move that run away") from error


def _table(rows: Sequence[Row]) -> pyarrow.Table:
    """The rows under one schema: what some lack is null, and every row has the text of its problem."""
    import pyarrow

    prompts = {row["place"]: row["prompt"] for row in rows if "prompt" in row}
    there = {name for row in rows for name in row}
    scores, clusters = sorted(there - {*_FIRST, *_LAST, _CLUSTER}), (_CLUSTER,) if _CLUSTER in there else ()
    names = (*_FIRST[:5], *clusters, *_FIRST[5:6], *scores, *_FIRST[6:], *_LAST)
    columns = {name: [_cell(name, row, prompts) for row in rows] for name in names}
    return pyarrow.table({name: pyarrow.array(values, _type(name)) for name, values in columns.items()})


def _type(name: str) -> pyarrow.DataType:
    import pyarrow

    if name in _TEXT:
        return pyarrow.string()
    return pyarrow.int64() if name in _WHOLE else pyarrow.bool_() if name in _FLAGS else pyarrow.float64()


def _cell(name: str, row: Row, prompts: Mapping[object, object]) -> object:
    value = prompts.get(row["place"]) if name == "prompt" else row.get(name)
    if isinstance(value, (int, bool)) and name not in (*_WHOLE, *_FLAGS):
        return float(value)
    # Half a surrogate pair is no text for Arrow; samples.jsonl writes it as \ud83d, too.
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value
