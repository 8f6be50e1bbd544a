"""DataSpec -> rows -> the problems of train, eval and test: drawn by `data_seed`, and none in two of them.

Here: which reader a file's ending asks for, what is true of all of them, and which row is in which split. Not here: the
formats (formats), and what the columns mean (prompts).
"""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from random import Random

from core.config.task import CustomTaskSpec, DataSpec
from core.errors import SpecError
from core.tasks.base import Example, Split
from core.tasks.custom.formats import Row, read_csv, read_hub, read_jsonl, read_parquet
from core.tasks.custom.prompts import Prompts

READERS: dict[str, Callable[[Path], list[Row]]] = {
    ".jsonl": read_jsonl,
    ".json": read_jsonl,
    ".csv": read_csv,
    ".parquet": read_parquet,
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
    return _completed(read_hub(data.hub, data.config, data.split, data.revision), f"{data.hub}: ")


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
        names = [file.name for file in path.parent.iterdir() if file.suffix.lower() in READERS and file != path]
    except OSError:
        return f"; there is no folder {path.parent} either"
    stems = {Path(name).stem: name for name in names}
    near = difflib.get_close_matches(path.stem, stems, n=1)
    return f"; did you mean {stems[near[0]]}?" if near else ""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Pool:
    """Rows in the order they are taken in, and what each asks."""

    rows: Sequence[Row]
    asked: Sequence[str]


def splits_of(spec: CustomTaskSpec, prompts: Prompts) -> dict[Split, tuple[Example, ...]]:
    """The problems of every split.

    Test problems are all rows of `test_data`. Held-out ones are drawn first, so that they stay the same whatever
    train_prompts is: no two alike, none of them a test problem. Training ones are what is left, less everything
    that is asked in the other two. Raises SpecError with the numbers where there are too few.
    """
    data = _pool(spec, prompts, spec.data)
    test = None if spec.test_data is None else _pool(spec, prompts, spec.test_data)
    known = set() if test is None else set(test.asked)
    held_out = data if spec.eval_data is None else _pool(spec, prompts, spec.eval_data)
    evaluated, taken = _first(held_out, spec.eval_prompts, known)
    _enough("eval", len(evaluated), spec, held_out)
    known |= taken
    train = [row for row, asked in zip(data.rows, data.asked, strict=True) if asked not in known]
    _enough("train", len(train), spec, data)
    return {
        "train": _examples(prompts, train[: spec.train_prompts], "train"),
        "eval": _examples(prompts, evaluated, "eval"),
        "test": () if test is None else _examples(prompts, sorted(test.rows, key=lambda row: row.line), "test"),
    }


def _pool(spec: CustomTaskSpec, prompts: Prompts, data: DataSpec) -> _Pool:
    rows = list(rows_of(data, spec.data_seed))
    prompts.check(rows[0])
    Random(f"custom order/{spec.data_seed}").shuffle(rows)
    return _Pool(rows=rows, asked=[_what_is_asked(prompts, row) for row in rows])


def _what_is_asked(prompts: Prompts, row: Row) -> str:
    """The prompt without its white space and case: two that differ in these only are the same problem."""
    text, messages = prompts.asked(row)
    whole = text if messages is None else json.dumps([dict(message) for message in messages])
    return " ".join(whole.split()).casefold()


def _first(pool: _Pool, count: int, known: set[str]) -> tuple[list[Row], set[str]]:
    """The first rows that ask something new each, and what they ask."""
    chosen: list[Row] = []
    taken: set[str] = set()
    for row, asked in zip(pool.rows, pool.asked, strict=True):
        if len(chosen) == count:
            break
        if asked not in known and asked not in taken:
            chosen.append(row)
            taken.add(asked)
    return chosen, taken


def _enough(split: Split, there: int, spec: CustomTaskSpec, pool: _Pool) -> None:
    """Raises SpecError with the numbers where a split has fewer problems than it is to have."""
    wanted = spec.train_prompts if split == "train" else spec.eval_prompts
    if there >= wanted:
        return
    rows, different = len(pool.rows), len(set(pool.asked))
    if split == "train":
        why = f"{there} of the data's {rows} rows are left to train on, the others ask what is held out"
        shrink = f"task.train_prompts to {there}" if there else "task.eval_prompts"
    else:
        why = f"{there} problems can be held out of {rows} rows with {different} different prompts"
        shrink = f"task.eval_prompts to {there}" if there else "task.eval_prompts"
    where = spec.eval_data if split == "eval" and spec.eval_data is not None else spec.data
    raise SpecError(
        f"got {wanted}, but {why}; lower {shrink}, or give more data", file=file_of(where), key=f"task.{split}_prompts"
    )


def _examples(prompts: Prompts, rows: Sequence[Row], split: Split) -> tuple[Example, ...]:
    return tuple(prompts.example(row, split, index) for index, row in enumerate(rows))
