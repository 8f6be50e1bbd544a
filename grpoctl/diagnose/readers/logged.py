"""One line's metrics in a console log, and what kind of line it is: of a step, or of an evaluation behind one.

What is not here: how lines are read (console_lines), and which of them are one course (course_of_lines).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

from grpoctl.diagnose.readers.attempts import Cells
from grpoctl.diagnose.readers.metric_names import name_of

Form = Literal["dictionary", "verl", "table", "pairs", "stretches"]
_OF_ONE_COMPLETION = frozenset({"reward/mean", "completions/length", "completions/valid"})
SUMMARY = "train_runtime"  # in what a trainer prints at the end


class Logged(NamedTuple):
    """A line's (or a dictionary's) metrics: where it stands, what numbers it, where the last progress bar stood."""

    line: int
    form: Form
    cells: Mapping[str, float | None]
    step: int | None = None
    bar: int | None = None
    epoch: float | None = None  # where a line says no more than that
    table: int = 0  # which of the log's tables a row is of, from 1
    part: bool = False  # of the run, and no step: what stands for its start or its end
    run: str = ""  # which of several a dictionary says that it is of
    single: bool = False  # of one completion of several, by the line's own words
    in_bar: bool = False  # behind a progress bar in its own line, which draws it again and again


def is_held_out(metric: str | None) -> bool:
    """Whether a metric is the reward of an evaluation, or of one of its sets."""
    return metric == "eval/reward" or (metric or "").startswith("eval/slices/")


@lru_cache(maxsize=1000)
def is_of_evaluation(names: tuple[str, ...]) -> bool:
    """Whether an entry with these names is an evaluation, or a run's summary."""
    return SUMMARY in names or (
        any(name.startswith("eval_") for name in names) and not any(name_of(name) == "reward/mean" for name in names)
    )


@lru_cache(maxsize=1000)
def only_of_evaluations(names: tuple[str, ...]) -> bool:
    """Whether names are of an evaluation's metrics, and of nothing else."""
    metrics = {name_of(name) for name in names} - {None, "step"}
    return bool(metrics) and all((metric or "").startswith("eval/") for metric in metrics)


@lru_cache(maxsize=1000)
def tells_no_training(names: tuple[str, ...]) -> bool:
    """Whether an entry with these names is an evaluation's or a summary's, whatever form it has."""
    return is_of_evaluation(names) or only_of_evaluations(names)


def stands_behind(entry: Logged) -> bool:
    """Whether an entry is an evaluation that says no step: it was made after the row before it."""
    names = tuple(entry.cells)
    a_line = entry.form in ("pairs", "dictionary") and entry.step is None
    return is_of_evaluation(names) or (a_line and only_of_evaluations(names))


@lru_cache(maxsize=1000)
def has_reward(names: tuple[str, ...]) -> bool:
    """Whether one of the names is the mean reward of training."""
    return "reward/mean" in map(name_of, names)


@lru_cache(maxsize=1000)
def tells_a_score(names: tuple[str, ...]) -> bool:
    """Whether names are of what a completion earned and how long it is, and of no update."""
    metrics = {name_of(name) or "" for name in names} - {"", "step"}
    return all(metric in _OF_ONE_COMPLETION or metric.startswith("rewards/") for metric in metrics)


def tells_a_mean(names: Iterable[str]) -> bool:
    """Whether the name of a reward says that it is a mean."""
    rewards = [name for name in names if name_of(name) == "reward/mean"]
    return any(word in ("mean", "avg", "average") for name in rewards for word in re.split(r"[^a-z]+", name.lower()))


def mean_cells(rows: Sequence[Logged]) -> dict[str, float | None]:
    """The mean of what each row tells, a name at a time; NaN where a value was no number once."""
    cells: dict[str, float | None] = {}
    for name in dict.fromkeys(name for row in rows for name in row.cells):
        values = [value for row in rows if (value := row.cells.get(name)) is not None]
        cells[name] = math.fsum(values) / len(values) if values and all(map(math.isfinite, values)) else math.nan
    return cells


def as_mapped(cells: Cells, mapped: Mapping[str, str]) -> Cells:
    """The cells by the names that --map gives them."""
    return {mapped.get(name, name): value for name, value in cells.items()} if mapped else cells


def own_step(entry: Logged) -> float | None:
    return entry.step


def bar_of(entry: Logged) -> float | None:
    return entry.bar


def epoch_of(entry: Logged) -> float | None:
    epoch = entry.cells.get("epoch", entry.epoch)
    return epoch if epoch is not None and math.isfinite(epoch) else None
