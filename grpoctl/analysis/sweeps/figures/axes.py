"""Figures of a study's axes: the score by value, the importances, and two axes against each other."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from grpoctl.analysis.collect import number
from grpoctl.analysis.sweeps.axes import Axis, bin_ends, is_range, table_axes, varied
from grpoctl.analysis.sweeps.axes import marginals as by_level
from grpoctl.analysis.sweeps.axes import two_way as table_of
from grpoctl.analysis.sweeps.document import Digest
from grpoctl.analysis.sweeps.figures import style
from grpoctl.analysis.sweeps.tables import VERBS, crossing_of
from grpoctl.wording import metric_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ACROSS, _MOST = 3, 9  # panels
_LABEL = 24  # characters of a level of a grid
_SPREAD = 0.11  # of candidates beside each other, in units of the distance between two values


@dataclass(frozen=True, kw_only=True, slots=True)
class Grid:
    """Shades and texts over two axes; a shade of NaN is an empty cell."""

    rows: Axis
    columns: Axis
    shades: Sequence[Sequence[float]]
    texts: Sequence[Sequence[str]]
    bar: str  # what the shade measures
    colours: Sequence[str] = style.BLUES  # from the lowest to the highest shade
    limits: tuple[float, float] | None = None


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


def importances(of: Digest) -> Figure | None:
    """One bar per axis, the most important on top; None for fewer than two."""
    known = {str(key): number(share) for key, share in (of.document.get("importances") or {}).items()}
    shares = sorted(((key, share) for key, share in known.items() if share is not None), key=lambda entry: entry[1])
    if len(shares) < 2:
        return None
    figure = style.new_figure(6.5, 1.5 + 0.36 * len(shares))
    axes = figure.add_subplot()
    style.plain(axes)
    axes.grid(visible=False, axis="y")
    bars = axes.barh(
        [of.names.get(key, key) for key, _ in shares], [100 * share for _, share in shares], color=style.BLUE
    )
    axes.bar_label(bars, fmt="%.0f %%", padding=4, fontsize=style.SMALL)
    axes.set_xlim(0, max(100 * max(share for _, share in shares) * 1.15, 1.0))
    axes.set_xlabel("share [%]", fontsize=style.NORMAL)
    style.titled(
        figure,
        f"{of.document.get('study')}: importances",
        "importance of each axis for being in the best 40 % (PED-ANOVA)",
    )
    return figure


def two_way(of: Digest) -> Figure | None:
    """The mean score for each pair of values; None where fewer than two axes vary or nothing is ranked."""
    pair = table_axes(of.axes, of.document.get("importances") or {})
    if pair is None or not of.ranking.order:
        return None
    table = table_of(*pair, of.ranking)
    grid = Grid(
        rows=table.rows,
        columns=table.columns,
        shades=[[math.nan if cell.mean is None else cell.mean for cell in line] for line in table.cells],
        texts=[
            ["" if cell.mean is None else f"{metric_text(of.metric, cell.mean)}\n({cell.n})" for cell in line]
            for line in table.cells
        ],
        bar=style.measured(of),
        limits=(min(of.ranking.scores.values()), max(of.ranking.scores.values())),  # as a report has them
    )
    figure = _drawn(grid)
    style.titled(
        figure, f"{of.document.get('study')}: {grid.rows.name} x {grid.columns.name}",
        f"mean {of.metric} of the ranked candidates (how many)",
    )  # fmt: skip
    return figure


def regions(of: Digest) -> Figure | None:
    """The share of runs that collapsed (or were invalid, or learned nothing) for each pair of values.

    None where that is the same everywhere, or only one axis varies.
    """
    cross = crossing_of(of)
    if cross is None:
        return None
    grid = Grid(
        rows=cross.rows,
        columns=cross.columns,
        shades=[[100 * hit / runs if runs else math.nan for hit, runs in line] for line in cross.counts],
        texts=[[f"{hit} of {runs}" if runs else "" for hit, runs in line] for line in cross.counts],
        bar="share of runs [%]",
        colours=(style.PALE, style.RED),
        limits=(0.0, 100.0),
    )
    figure = _drawn(grid)
    style.titled(
        figure, f"{of.document.get('study')}: runs that {VERBS[cross.event]}",
        f"of all that ended, by {grid.rows.name} and {grid.columns.name}",
    )  # fmt: skip
    return figure


def _drawn(grid: Grid) -> Figure:
    from matplotlib.colors import LinearSegmentedColormap, Normalize

    down, across = len(grid.rows.levels), len(grid.columns.levels)
    figure = style.new_figure(max(2.6 + _cell_width(grid) * across, 5.4), 1.6 + 0.75 * down)
    axes = figure.add_subplot()
    known = [shade for line in grid.shades for shade in line if not math.isnan(shade)]
    low, high = grid.limits or (min(known, default=0.0), max(known, default=1.0))
    own = LinearSegmentedColormap.from_list("own", list(grid.colours))
    scale = Normalize(low, high if high > low else low + 1e-9)
    image = axes.imshow(grid.shades, cmap=own, norm=scale, aspect="auto")
    for y, line in enumerate(grid.texts):
        for x, text in enumerate(line):
            dark = bool(text) and _luminance(own(scale(grid.shades[y][x]))) < 0.45
            axes.text(
                x, y, text or "-", ha="center", va="center", fontsize=style.NORMAL, color="white" if dark else style.INK
            )
    labels = [style.two_lines(level.label, _LABEL) for level in grid.columns.levels]
    axes.set_xticks(range(across), labels, fontsize=style.SMALL)
    axes.set_yticks(range(down), [style.two_lines(level.label, _LABEL) for level in grid.rows.levels],
                    fontsize=style.SMALL)  # fmt: skip
    axes.set_xlabel(grid.columns.name, fontsize=style.NORMAL)
    axes.set_ylabel(grid.rows.name, fontsize=style.NORMAL)
    axes.tick_params(length=0)
    figure.colorbar(image, ax=axes, label=grid.bar).ax.tick_params(labelsize=style.SMALL)
    return figure


def _cell_width(grid: Grid) -> float:
    """Inches: room for the longest line of a column's label."""
    lines = [line for level in grid.columns.levels for line in style.two_lines(level.label, _LABEL).split("\n")]
    return max(1.2, 0.085 * max(map(len, lines)))


def _luminance(colour: Sequence[float]) -> float:
    red, green, blue = colour[:3]
    return 0.299 * red + 0.587 * green + 0.114 * blue
