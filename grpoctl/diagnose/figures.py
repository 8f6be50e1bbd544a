"""A run's curves as one SVG text for a page: panels over a common step axis, updates marked, colours left to the page.

matplotlib is imported where something is drawn, never before.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from core.health.finding import StepTable
from grpoctl.diagnose.series import Panel, Points, panels, updates

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# What is drawn in these colours takes the page's variable of that name: light or dark is for the page to say.
COLOURS: Mapping[str, str] = {
    "ink": "#010203", "faint": "#040506", "train": "#070809", "eval": "#0a0b0c", "bad": "#0d0e0f", "mark": "#101112",
}  # fmt: skip
_WIDTH, _TALL, _LOW = 8.2, 1.75, 1.3  # inches: of the figure, of its first two panels, of the others
_SMALL, _NORMAL = 9.0, 10.0  # points
_DOTS = 150  # points of a curve that are drawn one by one
_SQUARES = 40  # evaluations that are
_FLAT, _AROUND = 1e-3, 0.1  # a spread below this share of the values is shown in a window of this share
_LOG = 50.0  # a panel whose values span more than this factor is drawn on a log scale


def figure_svg(table: StepTable) -> str:
    """The figure as an `<svg>` element of its own, without metadata or links; empty where nothing can be drawn."""
    drawn = panels(table)
    if not drawn:
        return ""
    import matplotlib

    plain = {"svg.fonttype": "none", "svg.hashsalt": "grpoctl", "font.family": "sans-serif"}
    out = io.StringIO()
    with matplotlib.rc_context(plain), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a letter that the font lacks is the browser's to find
        _figure(drawn, updates(table)).savefig(out, format="svg", transparent=True, metadata={"Date": None})
    return _for_a_page(out.getvalue())


def _figure(drawn: Sequence[Panel], marks: Sequence[float]) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    heights = [_TALL if index < 2 else _LOW for index in range(len(drawn))]
    figure = Figure(figsize=(_WIDTH, sum(heights) + 0.3), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(len(drawn), 1, sharex=True, squeeze=False, height_ratios=heights)
    for axes, panel in zip(grid[:, 0], drawn, strict=True):
        _draw(axes, panel, marks)
    grid[-1, 0].set_xlabel("step", fontsize=_NORMAL, color=COLOURS["ink"])
    return figure


def _draw(axes: Axes, panel: Panel, marks: Sequence[float]) -> None:
    _bare(axes, panel)
    if marks:
        for mark in marks:
            axes.axvline(mark, color=COLOURS["mark"], linewidth=1.0, zorder=1)
    dots = "o" if len(panel.train) <= _DOTS else ""
    axes.plot(
        *_split(panel.train), color=COLOURS["train"], linewidth=1.1, marker=dots, markersize=2.6, zorder=3, alpha=0.9
    )
    if panel.evaluation:
        axes.errorbar(
            *_split(panel.evaluation), yerr=list(panel.errors) or None, color=COLOURS["eval"], linewidth=1.7,
            marker="s" if len(panel.evaluation) <= _SQUARES else "", markersize=4, elinewidth=1.1, zorder=4,
        )  # fmt: skip
    if panel.marked:
        axes.plot(*_split(panel.marked), "o", color=COLOURS["bad"], markersize=4.2, zorder=5)


def _bare(axes: Axes, panel: Panel) -> None:
    """No frame where nothing is measured, a faint grid behind the data, the title to the left."""
    axes.set_title(panel.title, loc="left", fontsize=_NORMAL, color=COLOURS["ink"])
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(COLOURS["faint"])
    axes.grid(visible=True, axis="y", color=COLOURS["faint"], linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=_SMALL, labelcolor=COLOURS["ink"], color=COLOURS["faint"])
    axes.ticklabel_format(axis="y", useOffset=False)
    values = [y for _, y in (*panel.train, *panel.evaluation)]
    low, high = min(values), max(values)
    if panel.share:
        axes.set_ylim(-0.06, 1.06)
    elif high - low < _FLAT * max(abs(low), abs(high)):  # rounding is not to look like a curve
        axes.set_ylim((low + high) / 2 - abs(high) * _AROUND, (low + high) / 2 + abs(high) * _AROUND)
    elif low > 0 and high / low > _LOG:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")  # the default writes formulas
        axes.minorticks_off()


def _split(points: Points) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]


def _for_a_page(svg: str) -> str:
    """The element alone, in the page's colours, as wide as there is room."""
    svg = re.sub(r"<(metadata|style)\b.*?</\1>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r"font-family: [^;\"]*;? ?", "", svg)
    for name, colour in COLOURS.items():
        svg = svg.replace(colour, f"var(--{name})")
    return svg.strip()
