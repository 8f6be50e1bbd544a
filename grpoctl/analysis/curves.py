"""Curves: means over runs, values between points, and two curves as a text chart that reads without colour.

In a chart the first curve is drawn thin, the second heavy; where both run through one cell it is doubled. Images are
not here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from core.health.statistics import mean
from grpoctl.analysis.collect import RunRecord, number

Point = tuple[float, float]

_BOTH = "═"
_GUTTER = 9  # "  0.560 ┤"
_TICK_EVERY = 3  # rows
_NARROWEST = 40


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """Points (completions or steps, value) with rising x, drawn under a label."""

    label: str
    points: tuple[Point, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Line:
    """The glyphs of one line; those of a step are for one that rises, then for one that falls."""

    flat: str
    side: str
    leaving: tuple[str, str]
    arriving: tuple[str, str]


_THIN = _Line(flat="─", side="│", leaving=("╯", "╮"), arriving=("╭", "╰"))
_HEAVY = _Line(flat="━", side="┃", leaving=("┛", "┓"), arriving=("┏", "┗"))
_LINES = (_THIN, _HEAVY)


def axis_of(runs: Sequence[RunRecord]) -> str:
    """What a chart of these runs is drawn over: completions, or steps where a run has evaluations before any was drawn.

    Supervised stages sample nothing: over completions, all their evaluations would stand at 0.
    """
    starts = [
        row for run in runs for row in run.rows if number(row.get("completions")) == 0 and number(row.get("step"))
    ]
    return "step" if any(number(row.get("eval/reward")) is not None for row in starts) else "completions"


def mean_curve(runs: Sequence[RunRecord], metric: str = "eval/reward", axis: str = "completions") -> tuple[Point, ...]:
    """The mean over runs of a metric, at every number of completions (or steps) where one of them has it.

    Between its points a run is read along a straight line. A run that ended earlier keeps its last value: dropping it
    would let the mean jump where a collapsed run leaves it.
    """
    series = [points for points in (_series(run, metric, axis) for run in runs) if points]
    places = sorted({x for points in series for x, _ in points})
    return tuple((x, mean([_extended(points, x) for points in series])) for x in places)


def chart(title: str, curves: Sequence[Curve], *, axis: str = "completions", width: int = 80, height: int = 12) -> str:
    """A chart of one or two curves over `axis`, no line wider than `width` (at least 40), without colour.

    Raises ValueError for more than two curves: a third would have no line of its own.
    """
    if len(curves) > len(_LINES):
        raise ValueError(f"got {len(curves)} curves, at most two can be told apart without colour")
    drawn = [curve for curve in curves if curve.points]
    if not drawn:
        return f"{title}: nothing to draw"
    columns = max(width, _NARROWEST) - _GUTTER
    right = max(x for curve in drawn for x, _ in curve.points)
    low, high = _range([y for curve in drawn for _, y in curve.points])
    canvas = [[" "] * columns for _ in range(height)]
    for curve, line in zip(curves, _LINES[: len(curves)], strict=True):
        rows = [
            None if y is None else round((high - y) / (high - low) * (height - 1))
            for y in (_within(curve.points, right * column / (columns - 1)) for column in range(columns))
        ]
        _draw(canvas, rows, line)
    lines = [title, _legend(curves, columns + _GUTTER)]
    decimals = max(1, min(5, 2 - math.floor(math.log10(high - low))))
    for index, cells in enumerate(canvas):
        value = low + (high - low) * (height - 1 - index) / (height - 1)
        tick = (
            f"{value:7.{decimals}f} ┤" if index % _TICK_EVERY == 0 or index == height - 1 else " " * (_GUTTER - 1) + "│"
        )
        lines.append(tick + "".join(cells).rstrip())
    return "\n".join([*lines, *_axis(right, columns, "steps" if axis == "step" else axis)])


def _series(run: RunRecord, metric: str, axis: str) -> tuple[Point, ...]:
    pairs = ((number(row.get(axis)), number(row.get(metric))) for row in run.rows)
    return tuple((x, y) for x, y in pairs if x is not None and y is not None)


def value_at(points: Sequence[Point], x: float) -> float | None:
    """The value at x along straight lines between the points; None outside of them."""
    before = [point for point in points if point[0] <= x]
    after = [point for point in points if point[0] >= x]
    if not before or not after:
        return None
    (x0, y0), (x1, y1) = before[-1], after[0]
    return y0 if x1 == x0 else y0 + (y1 - y0) * (x - x0) / (x1 - x0)


def curve_value(run: RunRecord, metric: str, completions: float) -> float | None:
    """A metric of a run where it had drawn so many completions, read as `mean_curve` reads it; None without one."""
    points = _series(run, metric, "completions")
    return _extended(points, completions) if points else None


def _extended(points: Sequence[Point], x: float) -> float:
    """The value at x; beyond the ends the first or the last one."""
    value = value_at(points, x)
    return value if value is not None else (points[0] if x < points[0][0] else points[-1])[1]


def _within(points: Sequence[Point], x: float) -> float | None:
    """The value at x; None outside the curve, which is drawn no further than it went."""
    slack = 1e-9 * max(1.0, abs(x))  # the last column must not be lost to rounding
    if not points or not points[0][0] - slack <= x <= points[-1][0] + slack:
        return None
    return _extended(points, x)


def _range(values: Sequence[float]) -> tuple[float, float]:
    """The lowest and highest value to show; a flat line gets room above and below."""
    low, high = min(values), max(values)
    room = 0.0 if high - low > 1e-9 * max(1.0, abs(high)) else 0.05 * max(1.0, abs(high))
    return low - room, high + room


def _draw(canvas: list[list[str]], rows: Sequence[int | None], line: _Line) -> None:
    """Put one curve on the canvas; `rows` holds its row for each column, 0 on top."""
    previous: int | None = None
    for column, row in enumerate(rows):
        if row is None:
            previous = None
            continue
        if previous is None or previous == row:
            _put(canvas, row, column, line.flat)
        else:
            fell = int(row > previous)
            _put(canvas, previous, column, line.leaving[fell])
            _put(canvas, row, column, line.arriving[fell])
            for between in range(min(row, previous) + 1, max(row, previous)):
                _put(canvas, between, column, line.side)
        previous = row


def _put(canvas: list[list[str]], row: int, column: int, glyph: str) -> None:
    canvas[row][column] = glyph if canvas[row][column] == " " else _BOTH


def _legend(curves: Sequence[Curve], width: int) -> str:
    pairs = zip(curves, _LINES[: len(curves)], strict=True)
    keys = [f"{line.flat * 2} {curve.label}" for curve, line in pairs]
    keys += [f"{_BOTH * 2} both"] if len(curves) > 1 else []
    return (" " * _GUTTER + "   ".join(keys))[:width]


def _axis(right: float, columns: int, name: str) -> list[str]:
    """The line under the chart and the numbers under it."""
    middle = f"{right / 2:.0f}"
    numbers = "0" + middle.rjust(columns // 2 + len(middle) // 2 - 1)
    numbers += f"{right:.0f}".rjust(columns - len(numbers))
    label = name.center(columns).rstrip()
    return [" " * (_GUTTER - 1) + "└" + "─" * columns, " " * _GUTTER + numbers, " " * _GUTTER + label]
