"""The curves of runs as tables: what evaluations and training showed, over completions, updates and seconds.

Means over runs are those of `compare` (grpoctl.analysis.curves): between its points a run is read along a straight
line, and one that ended earlier keeps its last value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

from core.health.rules.gains import HEADLINE
from core.metrics import declared
from grpoctl.analysis.collect import RunRecord, number
from grpoctl.analysis.curves import mean_curve
from grpoctl.diagnose.figures import AROUND, FLAT, thinned
from grpoctl.files import read_rows
from grpoctl.report.charts import by_side, curves, shortened
from grpoctl.report.document import Cell, Chart, Table
from grpoctl.runs.run_dir import RunDir
from grpoctl.wording import plural

DEAD = "groups/dead"
AXES: Mapping[str, str] = {  # what a row counts -> the title of the axis
    "completions": "completions drawn",
    "updates": "updates of the weights",
    "seconds": "seconds of work, evaluations included",
}
ENDED = "Where a run has ended, its last value goes on in the mean."
STEPS = "step"  # in the place of completions where supervised stages draw none
_MANY = 12  # runs, from which on each is drawn fainter
_POINTS = 24  # of one run's curve of training; of more, as many bins' means

Sides = Mapping[str, Sequence[RunRecord]]  # name -> runs


def counted(run: RunRecord) -> RunRecord:
    """The run, each of its rows with `updates` and `seconds` up to and including its step."""
    updates = accumulate(int(number(row.get("update")) or 0) for row in run.rows)
    timings = [] if run.path is None else read_rows(RunDir(path=run.path).timings)
    spent: dict[object, float] = {}
    for row in timings:
        spent[row.get("step")] = spent.get(row.get("step"), 0.0) + (number(row.get("total")) or 0.0)
    seconds = accumulate(spent.get(row.get("step"), 0.0) for row in run.rows)
    more = [
        {"updates": done, **({"seconds": lasted} if spent else {})}
        for done, lasted in zip(updates, seconds, strict=True)
    ]
    return replace(run, rows=tuple({**row, **extra} for row, extra in zip(run.rows, more, strict=True)))


def measured(metric: str) -> str:
    """The metric with its unit, for an axis: `groups/dead (fraction)`."""
    known = declared(metric)
    return (
        metric
        if known is None or known.unit in ("1", metric, metric.rpartition("/")[2])
        else f"{metric} ({known.unit})"
    )


def unscored(sides: Sides, metric: str = HEADLINE) -> str:
    """A sentence on the evaluations that curves leave out, since nothing in them was scored; empty where none is."""
    known = [run.rows for runs in sides.values() for run in runs if any(_has(row, metric) for row in run.rows)]
    made = [row for rows in known for row in rows if any(name.startswith("eval/") for name in row)]
    missing = sum(not _has(row, metric) for row in made)
    if not missing or not metric.startswith("eval/"):
        return ""
    return f" {missing} of {plural(len(made), 'evaluation')} left out: no completion could be scored, so no {metric}."


def _has(row: Mapping[str, object], metric: str) -> bool:
    return number(row.get(metric)) is not None


def evaluation_charts(
    name: str, sides: Sides, axes: Sequence[str], *, metric: str = HEADLINE, colours: Sequence[str] = ()
) -> list[Chart]:
    """The curves of a metric of the evaluations, a chart for each axis; none where no run has two evaluations."""
    tables = _tables(name, sides, metric, axes, most=None)
    return [
        Chart(
            name=f"{name}-{axis}",
            title=f"{metric} against {axis if axis in AXES else 'steps'}",
            reads="",
            spec=_spec(axis, measured(metric), sides, tables, colours=colours, limits=_around(tables)),
            tables=tables,
            small=True,
        )
        for axis in axes
        if _drawn(tables, axis)
    ]


def dead_groups(name: str, sides: Sides, axis: str, colours: Sequence[str] = ()) -> Chart | None:
    """The share of groups whose completions all earned the same, over a run; None where no run recorded it."""
    tables = _tables(name, sides, DEAD, [axis], most=_POINTS)
    if not _drawn(tables, axis):
        return None
    return Chart(
        name=name,
        title="Dead groups over time",
        reads=(
            "The share of groups in which all completions earned the same: nothing is learned from those. Thin: one "
            f"seed, at most {_POINTS} points, each the mean of neighbouring steps; thick: the mean over seeds. {ENDED}"
        ),
        spec=_spec(axis, "dead groups (share)", sides, tables, colours=colours, limits=(0.0, 1.0)),
        tables=tables,
    )


def _spec(
    axis: str,
    y_title: str,
    sides: Sides,
    tables: Mapping[str, Table],
    *,
    colours: Sequence[str],
    limits: tuple[float, float] | None,
) -> Mapping[str, Any]:
    seeds, means = tables
    many = sum(map(len, sides.values())) > _MANY
    looks, titles = by_side(list(sides), colours), (AXES.get(axis, "steps"), y_title)
    return curves(axis, titles, looks, (seeds, means), limits=limits, many=many)


def _around(tables: Mapping[str, Table]) -> tuple[float, float] | None:
    """Limits of y for values that are next to equal: what rounding does is not to look like a curve."""
    values = [value for row in next(iter(tables.values())).rows if (value := number(row[-1])) is not None]
    if not values or max(values) - min(values) > FLAT * max(map(abs, values)):
        return None
    middle, room = (min(values) + max(values)) / 2, AROUND * (max(map(abs, values)) or 1.0)
    return middle - room, middle + room


def _tables(name: str, sides: Sides, metric: str, axes: Sequence[str], *, most: int | None) -> Mapping[str, Table]:
    """The points of every run (at most so many), then those of the means: axis, side, run and seed, x, value."""
    seeds: list[tuple[Cell, ...]] = []
    means: list[tuple[Cell, ...]] = []
    for axis in axes:
        for side, runs in sides.items():
            label = shortened(side)
            known = [drawn for run in runs if (drawn := _reduced(run, axis, metric, most)).rows]
            seeds += [
                (axis, label, run.run_id, float(run.seed), number(row[axis]), number(row[metric]))
                for run in known
                for row in run.rows
            ]
            means += [(axis, label, x, y) for x, y in mean_curve(known, metric, axis)]
    return {
        f"{name}-seeds": Table(columns=("axis", "side", "run", "seed", "x", "value"), rows=tuple(seeds)),
        f"{name}-means": Table(columns=("axis", "side", "x", "value"), rows=tuple(means)),
    }


def _reduced(run: RunRecord, axis: str, metric: str, most: int | None) -> RunRecord:
    """The run with its points of one curve as its only rows, thinned to so many."""
    pairs = ((number(row.get(axis)), number(row.get(metric))) for row in run.rows)
    points = tuple((x, y) for x, y in pairs if x is not None and y is not None)
    kept = points if most is None else thinned(points, most)
    return replace(run, rows=tuple({axis: x, metric: y} for x, y in kept))


def _drawn(tables: Mapping[str, Table], axis: str) -> bool:
    """True where some run has two points on the axis."""
    runs = [row[2] for row in next(iter(tables.values())).rows if row[0] == axis]
    return len(set(runs)) < len(runs)
