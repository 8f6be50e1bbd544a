"""The score over each axis: every candidate, and the mean of each value."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from grpoctl.analysis.collect import number
from grpoctl.analysis.sweeps.axes import Axis, bin_ends, is_range, varied
from grpoctl.analysis.sweeps.digest import Digest
from grpoctl.analysis.sweeps.figures import style
from grpoctl.analysis.sweeps.marginals import marginals as by_level

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ACROSS, _MOST = 3, 9  # panels
_SPREAD = 0.11  # of candidates beside each other, in units of the distance between two values


def marginals(of: Digest) -> Figure | None:
    """One panel per axis that varies; None where none does or nothing is ranked."""
    shown = [axis for axis in varied(of.axes) if axis.key != "candidate"][:_MOST]
    if not shown or not of.ranking.order:
        return None
    across = min(_ACROSS, len(shown))
    down = math.ceil(len(shown) / across)
    figure = style.new_figure(max(3.4 * across, 4.2), 1.2 + 2.7 * down)
    panels = figure.subplots(down, across, squeeze=False, sharey=True)
    for place, panel in enumerate(panels.flat):
        if place < len(shown):
            _panel(panel, of, shown[place])
        else:
            panel.set_visible(False)
    for row in panels:
        row[0].set_ylabel(style.measured(of), fontsize=style.NORMAL)
    style.titled(
        figure, f"{of.document.get('study')}: score by value",
        "dots: candidates (x: a guard stopped some runs); bars: mean of a value, 95 % interval between candidates",
    )  # fmt: skip
    return figure


def _panel(axes: Axes, of: Digest, axis: Axis) -> None:
    style.plain(axes)
    spec = (of.document.get("axes") or {}).get(axis.key) or {}
    continuous = is_range(spec) and all(level.place is not None for level in axis.levels)
    if continuous:
        centres = _over_range(axes, of, axis, spec)
    else:
        centres = [float(place) for place in range(len(axis.levels))]
        _over_levels(axes, of, axis)
    for centre, entry in zip(centres, by_level(axis, of.ranking, of.trials.values(), sign=of.sign), strict=True):
        if entry.estimate is None:
            continue
        interval = entry.estimate.interval
        if interval is not None and entry.estimate.n > 1:
            axes.plot([centre, centre], interval, color=style.BLUE, linewidth=1.6, alpha=0.7, zorder=3)
        axes.plot([centre], [entry.estimate.mean], "_", color=style.BLUE, markersize=16, markeredgewidth=2.6, zorder=4)
    values = [of.ranking.scores[index] for index in of.ranking.order]
    room = (max(values) - min(values)) * 0.08 or 0.05
    axes.set_ylim(min(values) - room, max(values) + room)  # an interval of two candidates must not flatten the rest
    axes.set_xlabel(axis.name, fontsize=style.NORMAL)


def _over_levels(axes: Axes, of: Digest, axis: Axis) -> None:
    """Candidates side by side over their value."""
    at: dict[int, float] = {}
    for place, level in enumerate(axis.levels):
        ranked = sorted(index for index in level.numbers if index in of.ranking.scores)
        for nth, index in enumerate(ranked):
            at[index] = place + (nth - (len(ranked) - 1) / 2) * min(_SPREAD, 0.7 / len(ranked))
    _dots(axes, of, at)
    labels = [style.two_lines(level.label, max(8, 48 // len(axis.levels))) for level in axis.levels]
    crowded = sum(map(len, labels)) > 26
    axes.set_xticks(range(len(labels)), labels, fontsize=style.SMALL, rotation=20 if crowded else 0,
                    ha="right" if crowded else "center")  # fmt: skip
    axes.set_xlim(-0.6, len(labels) - 0.4)
    axes.grid(visible=False, axis="x")


def _over_range(axes: Axes, of: Digest, axis: Axis, spec: dict[str, Any]) -> list[float]:
    """Candidates over the range itself; the middle of each bin."""
    log = bool(spec.get("log"))
    low, high = float(spec["low"]), float(spec["high"])
    axes.set_xscale("log" if log else "linear")
    ends = bin_ends(spec)
    axes.set_xticks(ends, [style.shortened(f"{end:.2g}", 8) for end in ends], fontsize=style.SMALL)
    axes.set_xticks([], minor=True)  # a log axis labels these too, one over the other
    room = (high / low) ** 0.05 if log else 0.05 * (high - low)
    axes.set_xlim(*((low / room, high * room) if log else (low - room, high + room)))
    values = {index: number((of.trials[index].get("params") or {}).get(axis.key)) for index in of.ranking.order}
    _dots(axes, of, {index: value for index, value in values.items() if value is not None})
    centres = []
    for level in axis.levels:
        place = level.place or 0
        left, right = ends[place], ends[place + 1]
        centres.append(math.sqrt(left * right) if log else (left + right) / 2)
    return centres


def _dots(axes: Axes, of: Digest, at: Mapping[int, float]) -> None:
    """Each candidate's score at its place."""
    flagged = set(of.ranking.flagged)
    for chosen, marker, colour in ((set(at) - flagged, "o", style.GREY), (flagged & set(at), "x", style.RED)):
        numbers = sorted(chosen)
        axes.plot(
            [at[index] for index in numbers], [of.ranking.scores[index] for index in numbers], marker, color=colour,
            markersize=4.5, alpha=0.8, linestyle="", zorder=2,
        )  # fmt: skip
