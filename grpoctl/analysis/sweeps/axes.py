"""The axes of a study as levels that trials share: a value, or a bin of a range.

What is here: which trial stands where. What is not: what the trials of a level are worth (marginals) or how their runs
ended (regions).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grpoctl.analysis.collect import number
from grpoctl.analysis.sweeps.wording import short_keys, value_text

Document = Mapping[str, Any]
Trial = Mapping[str, Any]

_BINS = 4
_FEW = 8  # distinct values of a range that need no bins
_K, _SCALE = "num_generations", "scale_rewards"


@dataclass(frozen=True, kw_only=True, slots=True)
class Level:
    """A value of an axis, or a bin of its range, and the numbers of the trials that stand there."""

    label: str
    numbers: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Axis:
    """One axis: its dotted key, its short name, its levels in their own order. Trials it did not act in have none."""

    key: str
    name: str
    levels: tuple[Level, ...]
    ordered: bool  # its values are numbers: they have ends

    @property
    def crowded(self) -> bool:
        """Whether some level has several trials, so that a mean over them says more than their own scores."""
        return any(len(level.numbers) > 1 for level in self.levels)


def axes_of(document: Document) -> list[Axis]:
    """Every axis of the study that has at least one trial; named candidates are one axis, `candidate`."""
    trials = document.get("trials") or ()
    declared = document.get("axes") or {}
    if not declared:
        named = tuple(Level(label=str(one["name"]), numbers=(int(one["number"]),)) for one in trials if one.get("name"))
        return [Axis(key="candidate", name="candidate", levels=named, ordered=False)] if named else []
    names = short_keys(declared)
    found = [_axis(key, names[key], spec or {}, trials) for key, spec in declared.items()]
    return [axis for axis in found if axis.levels]


def varied(axes: Iterable[Axis]) -> list[Axis]:
    """Those with at least two levels."""
    return [axis for axis in axes if len(axis.levels) > 1]


def table_axes(found: Iterable[Axis], importances: Mapping[str, Any]) -> tuple[Axis, Axis] | None:
    """The two axes of the two-way table: K x normalisation where both vary, else the two most important ones.

    Without importances the first two; None where fewer than two vary.
    """
    axes = varied(found)
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
    if "low" in spec and numeric and len(values) > _FEW:
        return Axis(key=key, name=name, levels=_binned(at, spec), ordered=True)
    listed = [_identity(value) for value in spec.get("values") or ()]
    found = [identity for identity in listed if identity in values]
    rest = [identity for identity in values if identity not in found]
    if numeric:  # an axis of numbers is read from the least to the largest, in whatever order it was written
        found, rest = sorted([*found, *rest], key=lambda identity: float(values[identity])), []
    by_value: dict[str, list[int]] = {}
    for identity, (trial, _) in zip(identities, at, strict=True):
        by_value.setdefault(identity, []).append(trial)
    levels = [Level(label=value_text(values[one]), numbers=tuple(by_value[one])) for one in [*found, *rest]]
    return Axis(key=key, name=name, levels=tuple(levels), ordered=numeric)


def _binned(at: Sequence[tuple[int, Any]], spec: Mapping[str, Any]) -> tuple[Level, ...]:
    """The range in bins of equal width (of equal ratio on a log axis); empty bins are left out."""
    low, high = float(spec["low"]), float(spec["high"])
    scale, back = (math.log, math.exp) if spec.get("log") else (float, float)
    start, width = scale(low), (scale(high) - scale(low)) / _BINS
    by_bin: dict[int, list[int]] = {}
    for trial, value in at:
        place = int((scale(float(value)) - start) / width) if width > 0 else 0
        by_bin.setdefault(min(max(place, 0), _BINS - 1), []).append(trial)
    ends = [low, *(back(start + width * index) for index in range(1, _BINS)), high]
    return tuple(
        Level(label=f"{_end(ends[place])} to {_end(ends[place + 1])}", numbers=tuple(by_bin[place]))
        for place in sorted(by_bin)
    )


def _end(value: float) -> str:
    return f"{value:.2g}"


def _identity(value: object) -> str:
    """Equal for equal values; 1, 1.0, true and "1" are four."""
    return repr(value) if isinstance(value, (int, float, str)) else json.dumps(value, sort_keys=True, default=str)
