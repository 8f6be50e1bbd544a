"""What all figures have in common: colours that the colour-blind can tell apart, sizes, labels."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from core.metrics import declared
from grpoctl.analysis.sweeps.document import Digest

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette
BLUE, ORANGE, RED, GREY = "#0072B2", "#E69F00", "#D55E00", "#8A8A8A"
FAINT, INK, PALE = "#C9C9C9", "#222222", "#DCE9F3"
BLUES = ("#F0F4F8", "#C9DCEC", "#97BFDD", "#3F86BB", "#0B4F82")  # more is darker; those of a report's page
SMALL, NORMAL = 8.0, 9.0  # points
_TITLE_WIDTH = 12  # characters per inch of a figure's width


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of so many inches that keeps its labels apart. No window, no state of the process."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def titled(figure: Figure, text: str, below: str) -> None:
    """A title, and under it in small letters what is shown."""
    width = int(figure.get_size_inches()[0] * _TITLE_WIDTH)
    lines = "\n".join([text, *textwrap.wrap(below, width)])
    figure.suptitle(lines, x=0.01, ha="left", fontsize=NORMAL + 0.5, color=INK)


def plain(axes: Axes) -> None:
    """No frame where nothing is measured, a faint grid behind the data."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.grid(visible=True, color="#ECECEC", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=SMALL, colors=INK)


def measured(of: Digest) -> str:
    """The metric with its unit, for an axis: `eval/reward [reward]`."""
    metric = declared(of.metric)
    return of.metric if metric is None or metric.unit in ("1", of.metric) else f"{of.metric} [{metric.unit}]"


def shortened(text: str, most: int) -> str:
    """The text, cut with an ellipsis where it is longer; a dollar sign stays one."""
    return (text if len(text) <= most else f"{text[: most - 1]}…").replace("$", r"\$")


def two_lines(text: str, most: int) -> str:
    """The label of a level, a range on two lines."""
    return shortened(text, most).replace(" to ", "\nto ")
