"""Rows -> the problems of train, eval and test: drawn by `data_seed`, and none in two of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from core.config.task import CustomTaskSpec, DataSpec
from core.errors import SpecError
from core.tasks.base import Example, Split
from core.tasks.custom.prompts import Prompts
from core.tasks.custom.row import Row
from core.tasks.custom.rows import file_of, rows_of


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
        "test": () if test is None else _examples(prompts, sorted(test.rows, key=_line), "test"),
    }


def _line(row: Row) -> int:
    return row.line


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
