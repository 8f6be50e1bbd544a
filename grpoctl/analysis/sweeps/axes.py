"""The axes of a study as levels that trials share (a value, or a bin of a range), and the mean scores of the levels.

What is not here: how the runs of a level ended (regions), and a model of the space; the importances are Optuna's
(grpoctl.sweeps).
"""

from __future__ import annotations

import bisect
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from core.health.statistics import Estimate, mean
from grpoctl.analysis.collect import number
from grpoctl.analysis.sweeps.ranking import Noise, Ranking, pooled
from grpoctl.analysis.sweeps.wording import short_keys, value_text

Document = Mapping[str, Any]
Trial = Mapping[str, Any]

_BINS = 4
_FEW = 8  # distinct values of an int or stepped range that need no bins
_OUTER = 0.1  # of a range
_LEAST_DF = 3  # of the spread within levels: of fewer an interval is as wide as the range, or of no width by luck
_K, _SCALE = "num_generations", "scale_rewards"


@dataclass(frozen=True, kw_only=True, slots=True)
class Level:
    """A value of an axis, or a bin of its range, and the numbers of the trials that stand there."""

    label: str
    numbers: tuple[int, ...]
    place: int | None = None  # of a bin in its range, from 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Axis:
    """One axis: its dotted key, its short name, its levels in their own order. Trials it did not act in have none."""

    key: str
    name: str
    levels: tuple[Level, ...]
    ordered: bool  # its values are numbers: they have ends

    @property
    def crowded(self) -> bool:
        """True when some level has several trials, so that a mean over them says more than their own scores."""
        return any(len(level.numbers) > 1 for level in self.levels)


def axes_of(document: Document) -> list[Axis]:
    """Every axis of the study that has at least one trial; named candidates are one axis, `candidate`."""
    trials = document.get("trials") or ()
    declared = document.get("axes") or {}
    if not declared:
        named = tuple(
            Level(label=str(trial["name"]), numbers=(int(trial["number"]),)) for trial in trials if trial.get("name")
        )
        return [Axis(key="candidate", name="candidate", levels=named, ordered=False)] if named else []
    names = short_keys(declared)
    axes = [_axis(key, names[key], spec or {}, trials) for key, spec in declared.items()]
    return [axis for axis in axes if axis.levels]


def varied(axes: Iterable[Axis]) -> list[Axis]:
    """The axes with at least two levels."""
    return [axis for axis in axes if len(axis.levels) > 1]


def is_range(spec: Mapping[str, Any]) -> bool:
    """True when an axis is a range of numbers; one that lists its values has no ends, or null ones."""
    return spec.get("low") is not None and spec.get("high") is not None


def ends_of(spec: Mapping[str, Any]) -> list[tuple[float, str]]:
    """(value, word) of the two ends of an axis of numbers; [] for other axes and for fewer than three values."""
    if is_range(spec):
        return [(float(spec["low"]), "lower"), (float(spec["high"]), "upper")]
    values = [number(value) for value in spec.get("values") or ()]
    known = [value for value in values if value is not None]
    return [(min(known), "lower"), (max(known), "upper")] if len(known) == len(values) > 2 else []


def at_end(value: float, end: float, spec: Mapping[str, Any]) -> bool:
    """True when a value is that end of its axis; of a range, when it is in the outer tenth."""
    if not is_range(spec):
        return value == end
    scale = math.log if spec.get("log") else float
    return abs(scale(value) - scale(end)) <= _OUTER * (scale(float(spec["high"])) - scale(float(spec["low"])))


def table_axes(axes: Iterable[Axis], importances: Mapping[str, Any]) -> tuple[Axis, Axis] | None:
    """The two axes of the two-way table: K x normalisation where both vary, else the two most important ones.

    Without importances the first two; None where fewer than two vary.
    """
    axes = varied(axes)
    by_ending = {axis.key.rsplit(".", 1)[-1]: axis for axis in reversed(axes)}
    if _K in by_ending and _SCALE in by_ending:
        return by_ending[_K], by_ending[_SCALE]
    if len(axes) < 2:
        return None
    first, second = sorted(axes, key=lambda axis: -(number(importances.get(axis.key)) or 0.0))[:2]
    return (first, second) if axes.index(first) < axes.index(second) else (second, first)


def _axis(key: str, name: str, spec: Mapping[str, Any], trials: Sequence[Trial]) -> Axis:
    with_it = [trial for trial in trials if key in (trial.get("params") or {})]
    at = [(int(trial["number"]), trial["params"][key]) for trial in with_it]
    identities = [_identity(value) for _, value in at]
    values = {identity: value for identity, (_, value) in zip(identities, at, strict=True)}
    numeric = bool(values) and all(number(value) is not None for value in values.values())
    dense = spec.get("type") == "float" and not spec.get("step")
    if is_range(spec) and numeric and (dense or len(values) > _FEW):
        return Axis(key=key, name=name, levels=_binned(at, spec), ordered=True)
    written = [_identity(value) for value in spec.get("values") or ()]
    order = list(dict.fromkeys([*(identity for identity in written if identity in values), *values]))
    if numeric:  # an axis of numbers is read from the least to the largest, in whatever order it was written
        order.sort(key=lambda identity: float(values[identity]))
    by_value: dict[str, list[int]] = {}
    for identity, (trial, _) in zip(identities, at, strict=True):
        by_value.setdefault(identity, []).append(trial)
    levels = [Level(label=value_text(values[identity]), numbers=tuple(by_value[identity])) for identity in order]
    return Axis(key=key, name=name, levels=tuple(levels), ordered=numeric)


def bin_ends(spec: Mapping[str, Any]) -> list[float]:
    """The ends of the bins of a range, its own ends included: of equal width, of equal ratio on a log axis."""
    low, high = float(spec["low"]), float(spec["high"])
    scale, back = (math.log, math.exp) if spec.get("log") else (float, float)
    width = (scale(high) - scale(low)) / _BINS
    return [low, *(back(scale(low) + width * index) for index in range(1, _BINS)), high]


def _binned(at: Sequence[tuple[int, Any]], spec: Mapping[str, Any]) -> tuple[Level, ...]:
    """The bins that have a trial. A value on a border belongs to the bin above it."""
    ends = bin_ends(spec)
    by_bin: dict[int, list[int]] = {}
    for trial, value in at:
        place = bisect.bisect_right(ends, float(value)) - 1
        by_bin.setdefault(min(max(place, 0), _BINS - 1), []).append(trial)
    return tuple(
        Level(label=f"{_end(ends[place])} to {_end(ends[place + 1])}", numbers=tuple(by_bin[place]), place=place)
        for place in sorted(by_bin)
    )


def _end(value: float) -> str:
    return f"{value:.2g}" if abs(value) < 100 else f"{value:.0f}"


def _identity(value: object) -> str:
    """Equal for equal values; 1, 1.0, true and "1" are four."""
    return repr(value) if isinstance(value, (int, float, str)) else json.dumps(value, sort_keys=True, default=str)


@dataclass(frozen=True, kw_only=True, slots=True)
class Marginal:
    """One level of an axis: the mean score of its ranked trials, `estimate` None where it has none.

    Its 95 % t interval has the spread between trials of one level, pooled over the axis's levels, so that what the
    other axes do is in it; None where no level has two ranked trials.
    """

    label: str
    estimate: Estimate | None
    best: float | None
    trials: int
    pruned: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One cell of a two-way table: the mean score of its ranked trials, None where there is none."""

    mean: float | None
    n: int


@dataclass(frozen=True, kw_only=True, slots=True)
class TwoWay:
    """Rows: levels of the first axis; columns: of the second."""

    rows: Axis
    columns: Axis
    cells: tuple[tuple[Cell, ...], ...]


def marginals(axis: Axis, ranking: Ranking, trials: Iterable[Mapping[str, Any]], *, sign: float) -> list[Marginal]:
    """One entry per level; `sign` is 1 where more is better, else -1. No interval where few trials share a level."""
    pruned = {int(trial["number"]) for trial in trials if trial["status"] == "PRUNED"}
    scores = [[ranking.scores[index] for index in level.numbers if index in ranking.scores] for level in axis.levels]
    spread = pooled(scores)
    if spread is not None and (spread.df < _LEAST_DF or spread.sd == 0):
        spread = None
    if spread is not None and ranking.noise is not None:
        spread = replace(spread, limits=ranking.noise.limits)
    return [
        Marginal(
            label=level.label,
            estimate=_estimate(here, spread) if here else None,
            best=max(here, key=lambda score: sign * score) if here else None,
            trials=len(level.numbers),
            pruned=len(pruned & set(level.numbers)),
        )
        for level, here in zip(axis.levels, scores, strict=True)
    ]


def two_way(rows: Axis, columns: Axis, ranking: Ranking) -> TwoWay:
    """The mean score for each pair of levels."""
    return TwoWay(
        rows=rows,
        columns=columns,
        cells=tuple(
            tuple(_cell([*(set(row.numbers) & set(column.numbers))], ranking) for column in columns.levels)
            for row in rows.levels
        ),
    )


def _estimate(scores: Sequence[float], spread: Noise | None) -> Estimate:
    centre, n = mean(scores), len(scores)
    return Estimate(mean=centre, interval=None if spread is None else spread.interval(centre, n), n=n)


def _cell(numbers: Iterable[int], ranking: Ranking) -> Cell:
    scores = [ranking.scores[index] for index in sorted(numbers) if index in ranking.scores]
    return Cell(mean=mean(scores) if scores else None, n=len(scores))
