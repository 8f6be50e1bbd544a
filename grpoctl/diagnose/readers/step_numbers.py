"""Which training step each row of a console log is of: by its own number, a progress bar, its order.

What is not here: which lines are rows (course_of_lines).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise, takewhile
from typing import NamedTuple

from grpoctl.diagnose.readers.attempts import FROM_SCRATCH
from grpoctl.diagnose.readers.logged import (
    SUMMARY,
    Logged,
    as_mapped,
    has_reward,
    is_of_evaluation,
    stands_behind,
    tells_no_training,
)
from grpoctl.diagnose.readers.metric_names import name_of
from grpoctl.diagnose.readers.trainer_log import Entry, trains

_BY_ORDER = "the log has no step numbers: a row is counted as one step"
_OF_EPOCHS = "the log counts its steps anew (in each epoch): a row is counted as one step"
_OWN_STEPS = "steps are the log's own"
_AN_EXCERPT = "; by its epoch the first is not the run's first"
_CLOSEST = 0.01  # epochs: older versions round to two decimals, and one row has no neighbour
_OF_RATE = 0.0005  # steps a second, or of them: a summary has three decimals, newer ones four digits
_BEFORE = 10  # rows: fewer may be rounding
_FEWEST_ROWS, _MOST_STEPS = 3, 10_000_000  # rows that show a run's first one; steps
_OWN = 0.9  # of the rows have a step of their own, where steps go back


class Numbered(NamedTuple):
    """A log's rows with their steps."""

    entries: list[Entry]
    how: str
    by_order: bool = False  # nothing in the log numbers them
    excerpt: bool = False  # the first one is not the run's first


def numbered(logged: Sequence[Logged], *, mapped: Mapping[str, str]) -> Numbered:
    """The entries with their steps and with --map's names, and how they were numbered."""
    training = list(logged)
    if any(map(tells_no_training, {tuple(entry.cells) for entry in logged})):
        training = [entry for entry in logged if not stands_behind(entry)] or training
    with_step = [entry for entry in training if entry.step is not None]
    if len(training) - len(with_step) <= len(training) / 20 or _tell_no_reward(training):
        training = with_step  # a summary, a word on the start: of the row before
    own = [entry.step for entry in training]
    steps, how, by_order = _steps_of(logged, training)
    excerpt = by_order and _is_excerpt(training)
    if excerpt:
        how += _AN_EXCERPT
    number_of = {id(entry): step for entry, step in zip(training, steps, strict=True)}
    if steps and min(steps) == 0 and _trains_at_zero(training, steps):
        apart = 1 not in steps and len(steps) > 1  # one row in so many: only the first would be no step
        number_of = {key: max(step, 1) if apart else step + 1 for key, step in number_of.items()}
        how += "; it counts from 0: its first row is step 1"
    stated = {}
    if how.startswith(_OWN_STEPS) and len(training) < len(logged):
        stated = {step: number_of[id(entry)] for step, entry in zip(own, training, strict=True)}
    entries: list[Entry] = []
    step = 0
    for entry in logged:  # an evaluation without a step of its own stands behind the one it was made after
        if not entries and with_step and _is_a_citation(entry, number_of):
            continue
        step = number_of.get(id(entry), stated.get(entry.step, step))
        entries.append(Entry(step, as_mapped(entry.cells, mapped)))
    return Numbered(entries, how, by_order, excerpt)


def _is_a_citation(entry: Logged, number_of: Mapping[int, int]) -> bool:
    """Whether a row before the first step is neither one nor an evaluation: what a head cites."""
    return id(entry) not in number_of and entry.step is None and not stands_behind(entry)


def _tell_no_reward(training: Sequence[Logged]) -> bool:
    """Whether rows without a step of their own have no reward, those with one have, and are more."""
    rewarded = {entry.step for entry in training if has_reward(tuple(entry.cells))}
    without = sum(entry.step is None for entry in training)
    return None not in rewarded and len(rewarded) >= max(_FEWEST_ROWS, without)


def _steps_of(logged: Sequence[Logged], training: Sequence[Logged]) -> tuple[list[int], str, bool]:
    """The step of each row of training, what says so, and whether that is no more than their order."""
    own, bars = [entry.step for entry in training], [entry.bar for entry in training]
    goes_back = sum((after or 0) < (before or 0) for before, after in pairwise(own))
    again = goes_back and len({*own}) < _OWN * len(own)  # steps that are counted anew in each epoch, say
    if training and None not in own and goes_back <= len(own) / 20 and not again:
        return [step or 0 for step in own], _OWN_STEPS, False
    if None not in bars and all((a or 0) < (b or 0) for a, b in pairwise(bars)) and training:
        return [bar or 0 for bar in bars], "steps are the progress bar's", False
    order = list(range(1, len(training) + 1))
    if (span := _steps_of_a_row(logged, training)) is not None:
        return [span * step for step in order], f"steps by the run's summary: a row is of {span}", False
    return order, _OF_EPOCHS if again else _BY_ORDER, True


def _steps_of_a_row(logged: Sequence[Logged], training: Sequence[Logged]) -> int | None:
    """How many steps one row is of, by a trainer's summary behind all rows of a run; None where that does not tell.

    The summary's seconds times its rate, which is rounded, are the steps: with rows every k steps there are floor(steps
    / k) rows. The rows' epochs have to agree: the first row is as far from 0 as from the second, or the run was resumed
    and its summary is of other steps.
    """
    summary, epochs = _summary_behind(logged), [entry.cells.get("epoch") for entry in training]
    known = [epoch for epoch in epochs if epoch is not None and math.isfinite(epoch)]
    if summary is None or len(known) < max(_FEWEST_ROWS, len(epochs)):
        return None
    seconds, rate, end = summary
    apart, off = (known[-1] - known[0]) / (len(known) - 1), max(_OF_RATE, _OF_RATE * rate)
    most = seconds * (rate + off)
    if not (2 - FROM_SCRATCH) * apart < known[0] < FROM_SCRATCH * apart or most > _MOST_STEPS:
        return None
    least, by_epochs = seconds * (rate - off), seconds * rate * apart / end
    rounded = off / rate + _CLOSEST / ((len(known) - 1) * apart) + _CLOSEST / end  # of the rate, and of the epochs
    spans = range(math.floor(least / (len(known) + 1)) + 1, math.floor(most / len(known)) + 1)
    near = [span for span in spans if abs(span - by_epochs) <= 0.5 + rounded * by_epochs]
    return near[0] if len(near) == 1 else None


def _summary_behind(logged: Sequence[Logged]) -> tuple[float, float, float] | None:
    """(seconds, steps a second, epochs) of the trainer's summary behind all rows; several processes print it again."""
    behind = list(takewhile(lambda entry: is_of_evaluation(tuple(entry.cells)), reversed(logged)))
    summaries = [entry.cells for entry in behind if SUMMARY in entry.cells]
    if not summaries or len(summaries) < sum(SUMMARY in entry.cells for entry in logged):
        return None
    seconds, rate, end = (summaries[-1].get(name) or 0.0 for name in (SUMMARY, "train_steps_per_second", "epoch"))
    return (seconds, rate, end) if all(math.isfinite(one) and one > 0 for one in (seconds, rate, end)) else None


def _is_excerpt(training: Sequence[Logged]) -> bool:
    """Whether by its epoch the first row is not the run's first: ten rows or more would stand before it."""
    rewarded = [entry for entry in training if not {"eval/reward", "reward/mean"}.isdisjoint(map(name_of, entry.cells))]
    epochs = [epoch for entry in rewarded or training if (epoch := entry.cells.get("epoch")) is not None]
    if len(epochs) < 2 or len(epochs) < len(rewarded or training) or not all(map(math.isfinite, epochs)):
        return False
    if all(epoch.is_integer() for epoch in epochs):
        return False  # counted, from 0 or from 1
    apart = max((epochs[-1] - epochs[0]) / (len(epochs) - 1), _CLOSEST)
    return all(a <= b for a, b in pairwise(epochs)) and epochs[0] > _BEFORE * apart


def _trains_at_zero(training: Sequence[Logged], steps: Sequence[int]) -> bool:
    """Whether the row of step 0 has more than an evaluation: ours and verl's have one before the first update there."""
    first = next(entry for entry, step in zip(training, steps, strict=True) if step == 0)
    return trains({metric: value for name, value in first.cells.items() if (metric := name_of(name)) is not None})
