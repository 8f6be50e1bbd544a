"""The points of a sweep: which there are, in which order, and when two are the same. Draws nothing (samplers)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from itertools import islice
from typing import Any

from core.errors import SpecError
from grpoctl.config.identity import canonical
from grpoctl.sweeps.axis import Axis
from grpoctl.sweeps.spec import SweepSpec

Params = dict[str, Any]

EXPERIMENT = "experiment"  # stands in the params of a ladder's rung: which experiment its settings are put on
MOST = 10_000  # points that are written out


def finite(sweep: SweepSpec) -> bool:
    """Whether the points can be listed: no axis is a range of real numbers."""
    return all(count(axis) is not None for axis in sweep.axes.values())


def count(axis: Axis) -> int | None:
    """How many values an axis has; None for a range of real numbers."""
    if axis.values is not None:
        return len(axis.values)
    assert axis.low is not None
    assert axis.high is not None
    if axis.step is not None:
        return int((Decimal(str(axis.high)) - Decimal(str(axis.low))) / Decimal(str(axis.step))) + 1
    return int(axis.high) - int(axis.low) + 1 if axis.type == "int" else None


def values(axis: Axis) -> list[Any]:
    """The values of a finite axis in order, the top of a range included. Decimal steps: 0.1, 0.2, 0.3."""
    if axis.values is not None:
        return list(axis.values)
    number = count(axis)
    assert number is not None, "a range of real numbers has no list of values"
    low, step = Decimal(str(axis.low)), Decimal(str(axis.step if axis.step is not None else 1))
    exact = (low + step * index for index in range(number))
    return [int(value) if axis.type == "int" else float(value) for value in exact]


def size(sweep: SweepSpec) -> int | None:
    """How many points there are; None where they cannot be listed. Counts to MOST + 1 where axes are conditional."""
    if sweep.candidates or sweep.ladder:
        return len(sweep.candidates) or len(sweep.ladder)
    counts = [count(axis) for axis in sweep.axes.values()]
    product = 1
    for number in counts:
        if number is None:
            return None
        product *= number
    if any(axis.when for axis in sweep.axes.values()):
        return sum(1 for _ in islice(_product(sweep), MOST + 1))
    return product


def points(sweep: SweepSpec) -> list[Params]:
    """Every point, each once: candidates and rungs as they are written, else the product, the last axis fastest.

    Raises SpecError where they cannot be listed, or are more than MOST.
    """
    if sweep.candidates:
        return [dict(settings) for settings in sweep.candidates.values()]
    if sweep.ladder:
        return [{EXPERIMENT: rung.experiment, **rung.settings} for rung in sweep.ladder]
    number = size(sweep)
    if number is None:
        endless = ", ".join(key for key, axis in sweep.axes.items() if count(axis) is None)
        raise SpecError(f"{endless} is a range of real numbers; give it a step, or a list of values", key="axes")
    if number > MOST:
        raise SpecError(f"the axes have more than {MOST} points; take sampler tpe or random", key="axes")
    return list(_product(sweep))


def name_of(sweep: SweepSpec, params: Mapping[str, Any]) -> str | None:
    """The name of a candidate or rung; None for a point of axes."""
    names = [*sweep.candidates, *(rung.name for rung in sweep.ladder)]
    wanted = identity(params)
    known = points(sweep) if names else []
    return next((name for name, point in zip(names, known, strict=True) if identity(point) == wanted), None)


def identity(params: Mapping[str, Any]) -> str:
    """Canonical JSON of a point: equal for points that set the same, whatever the order and the way of writing."""
    return canonical(params)


def order(sweep: SweepSpec) -> list[str]:
    """The axes in the order in which they are chosen: as written, but each after those its `when` names."""
    chosen: list[str] = []
    left = list(sweep.axes)
    while left:
        key = next(key for key in left if all(other in chosen for other in sweep.axes[key].when))
        chosen.append(key)
        left.remove(key)
    return chosen


def active(sweep: SweepSpec, params_so_far: Mapping[str, Any], key: str) -> bool:
    """Whether an axis takes part at a point, of which the axes named in its `when` are known."""
    for other, allowed in sweep.axes[key].when.items():
        if other not in params_so_far:  # itself not active
            return False
        if canonical(params_so_far[other]) not in {canonical(value) for value in allowed}:
            return False
    return True


def _product(sweep: SweepSpec) -> Iterator[Params]:
    """The points one by one, keys as the axes are written. Lists no range before it is reached."""
    keys = order(sweep)

    def below(index: int, chosen: Params) -> Iterator[Params]:
        if index == len(keys):
            yield {key: chosen[key] for key in sweep.axes if key in chosen}
            return
        key = keys[index]
        options = values(sweep.axes[key]) if active(sweep, chosen, key) else [None]
        for value in options:
            yield from below(index + 1, {**chosen, key: value} if active(sweep, chosen, key) else chosen)

    return below(0, {})
