"""A run's curves: which panels they make, thinned out where they are long, and all of them as one SVG text for a page.

Colours are left to the page. matplotlib is imported where something is drawn, never before.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from core.health.finding import StepTable, all_invalid, sampled, steps_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST = 400  # points of a curve; of more, as many bins' means
_MARKS = 250  # updates that are marked one by one
# What is drawn in these colours takes the page's variable of that name: light or dark is for the page to say.
COLOURS: Mapping[str, str] = {
    "ink": "#010203", "faint": "#040506", "train": "#070809", "eval": "#0a0b0c", "bad": "#0d0e0f", "mark": "#101112",
}  # fmt: skip
_WIDTH, _TALL, _LOW = 8.2, 1.75, 1.3  # inches: of the figure, of its first two panels, of the others
_SMALL, _NORMAL = 9.0, 10.0  # points
_DOTS = 150  # points of a curve that are drawn one by one
_SQUARES = 40  # evaluations that are
FLAT, AROUND = 1e-3, 0.1  # a spread below this share of the values is shown in a window of this share
_LOG = 50.0  # a panel whose values span more than this factor is drawn on a log scale

Points = tuple[tuple[float, float], ...]  # (step, value)


@dataclass(frozen=True, kw_only=True, slots=True)
class Panel:
    """One axis over the steps. `marked` are points to set apart: all-invalid steps."""

    title: str
    column: str
    train: Points = ()
    evaluation: Points = ()
    errors: tuple[float, ...] = ()  # standard errors of the evaluations; () where one is not known
    marked: Points = ()
    share: bool = False  # between 0 and 1


_PANELS = (  # title, columns that may have it (the first one with values is taken), evaluation
    ("Reward", ("reward/mean",), "eval/reward"),
    ("Valid completions", ("completions/valid",), "eval/valid"),
    ("KL to the reference", ("kl",), None),
    ("Entropy [nats]", ("entropy",), None),
    ("Log-prob gap, sampled against scored [nats]", ("rollout/logprob_gap",), "eval/logprob_gap"),
    ("Std of the advantages", ("advantage/std", "advantage/std_all"), None),
    ("Gradient norm", ("grad_norm",), None),
    ("Loss", ("loss",), "eval/loss"),
    ("Supervised loss of the policy's own", ("losses/supervised",), None),
    ("Consistency loss of the policy's own", ("losses/consistency",), None),
)


def panels(table: StepTable) -> list[Panel]:
    """The panels that the table has two values for, in the order of what they tell."""
    candidates = (_panel(table, title, columns, evaluated) for title, columns, evaluated in _PANELS)
    return [panel for panel in candidates if len(panel.train) + len(panel.evaluation) > 1]


def updates(table: StepTable) -> tuple[float, ...]:
    """The steps with an update, to be marked; () where every step had one, where none did, and where there are many."""
    rows = steps_of(table)
    known = [row for row in rows if row.get("update") is not None]
    made = tuple(float(row["step"] or 0) for row in known if row["update"] == 1)
    return made if 0 < len(made) < len(known) and len(made) <= _MARKS else ()


def thinned(points: Points, most: int = MOST) -> Points:
    """The points, or the means of as many bins of neighbours as are allowed."""
    if len(points) <= most:
        return points
    edges = [index * len(points) // most for index in range(most + 1)]
    bins = (points[start:end] for start, end in pairwise(edges))
    return tuple((sum(x for x, _ in part) / len(part), sum(y for _, y in part) / len(part)) for part in bins)


def _panel(table: StepTable, title: str, columns: Sequence[str], evaluated: str | None) -> Panel:
    steps = steps_of(table)
    curves = ((column, _points(steps, column)) for column in columns)
    column, train = next(((name, points) for name, points in curves if points), (columns[0], ()))
    evaluation = _points(table, evaluated) if evaluated else ()
    errors = [row.get(f"{evaluated}_se") for row in table if row.get(evaluated or "") is not None]
    collapsed = [row for row in steps if sampled(row) and all_invalid(row)] if len(train) <= MOST else []
    return Panel(
        title=title,
        column=column,
        train=thinned(train),
        evaluation=thinned(evaluation),
        errors=tuple(e for e in errors if e is not None) if None not in errors and len(evaluation) <= MOST else (),
        marked=_points(collapsed, column),
        share=column == "completions/valid",
    )


def _points(table: StepTable, column: str) -> Points:
    points = ((float(row["step"] or 0), row.get(column)) for row in table)
    return tuple((step, float(value)) for step, value in points if value is not None and math.isfinite(value))


def figure_svg(table: StepTable) -> str:
    """The figure as an `<svg>` element of its own, without metadata or links; empty where nothing can be drawn."""
    shown = panels(table)
    if not shown:
        return ""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    plain = {"svg.fonttype": "none", "svg.hashsalt": "grpoctl", "font.family": "sans-serif"}
    out = io.StringIO()
    with matplotlib.rc_context(plain), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a letter that the font lacks is the browser's to find
        heights = [_TALL if index < 2 else _LOW for index in range(len(shown))]
        figure = Figure(figsize=(_WIDTH, sum(heights) + 0.3), layout="constrained")
        FigureCanvasAgg(figure)
        grid = figure.subplots(len(shown), 1, sharex=True, squeeze=False, height_ratios=heights)
        for axes, panel in zip(grid[:, 0], shown, strict=True):
            _draw(axes, panel, updates(table))
        grid[-1, 0].set_xlabel("step", fontsize=_NORMAL, color=COLOURS["ink"])
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    return _for_a_page(out.getvalue())


def _draw(axes: Axes, panel: Panel, marks: Sequence[float]) -> None:
    _frame(axes, panel)
    for mark in marks:
        axes.axvline(mark, color=COLOURS["mark"], linewidth=1.0, zorder=1)
    axes.plot(
        [step for step, _ in panel.train], [value for _, value in panel.train], color=COLOURS["train"], linewidth=1.1,
        marker="o" if len(panel.train) <= _DOTS else "", markersize=2.6, zorder=3, alpha=0.9,
    )  # fmt: skip
    if panel.evaluation:
        axes.errorbar(
            [step for step, _ in panel.evaluation], [value for _, value in panel.evaluation],
            yerr=list(panel.errors) or None, color=COLOURS["eval"], linewidth=1.7,
            marker="s" if len(panel.evaluation) <= _SQUARES else "", markersize=4, elinewidth=1.1, zorder=4,
        )  # fmt: skip
    if panel.marked:
        steps, values = [step for step, _ in panel.marked], [value for _, value in panel.marked]
        axes.plot(steps, values, "o", color=COLOURS["bad"], markersize=4.2, zorder=5)


def _frame(axes: Axes, panel: Panel) -> None:
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
    elif high - low < FLAT * max(abs(low), abs(high)):  # rounding is not to look like a curve
        axes.set_ylim((low + high) / 2 - abs(high) * AROUND, (low + high) / 2 + abs(high) * AROUND)
    elif low > 0 and high / low > _LOG:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")  # the default writes formulas
        axes.minorticks_off()


def _for_a_page(svg: str) -> str:
    """The element alone, in the page's colours, as wide as there is room."""
    svg = re.sub(r"<(metadata|style)\b.*?</\1>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r"font-family: [^;\"]*;? ?", "", svg)
    for name, colour in COLOURS.items():
        svg = svg.replace(colour, f"var(--{name})")
    return svg.strip()
