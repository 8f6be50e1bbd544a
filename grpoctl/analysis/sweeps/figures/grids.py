"""Two axes against each other: the mean score, and how many runs collapsed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from grpoctl.analysis.sweeps.axes import Axis, table_axes
from grpoctl.analysis.sweeps.digest import Digest
from grpoctl.analysis.sweeps.figures import style
from grpoctl.analysis.sweeps.marginals import two_way as table_of
from grpoctl.analysis.sweeps.tables import VERBS, crossing_of
from grpoctl.wording import metric_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LABEL = 24  # characters


@dataclass(frozen=True, kw_only=True, slots=True)
class Grid:
    """Shades and texts over two axes; a shade of NaN is an empty cell."""

    rows: Axis
    columns: Axis
    shades: Sequence[Sequence[float]]
    texts: Sequence[Sequence[str]]
    bar: str  # what the shade measures
    colours: Sequence[str] = ()  # from the lowest to the highest shade; none: cividis
    limits: tuple[float, float] | None = None


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
    found = crossing_of(of)
    if found is None:
        return None
    grid = Grid(
        rows=found.rows,
        columns=found.columns,
        shades=[[100 * hit / runs if runs else math.nan for hit, runs in line] for line in found.counts],
        texts=[[f"{hit} of {runs}" if runs else "" for hit, runs in line] for line in found.counts],
        bar="share of runs [%]",
        colours=(style.PALE, style.RED),
        limits=(0.0, 100.0),
    )
    figure = _drawn(grid)
    style.titled(
        figure, f"{of.document.get('study')}: runs that {VERBS[found.event]}",
        f"of all that ended, by {grid.rows.name} and {grid.columns.name}",
    )  # fmt: skip
    return figure


def _drawn(grid: Grid) -> Figure:
    from matplotlib import colormaps
    from matplotlib.colors import LinearSegmentedColormap, Normalize

    down, across = len(grid.rows.levels), len(grid.columns.levels)
    figure = style.new_figure(max(2.6 + _cell_width(grid) * across, 5.4), 1.6 + 0.75 * down)
    axes = figure.add_subplot()
    known = [shade for line in grid.shades for shade in line if not math.isnan(shade)]
    low, high = grid.limits or (min(known, default=0.0), max(known, default=1.0))
    own = LinearSegmentedColormap.from_list("own", list(grid.colours)) if grid.colours else colormaps["cividis"]
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
