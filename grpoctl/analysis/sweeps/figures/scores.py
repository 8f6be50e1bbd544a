"""The candidates, best first: mean, interval, and each seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from grpoctl.analysis.collect import number
from grpoctl.analysis.sweeps.digest import Digest
from grpoctl.analysis.sweeps.figures import style
from grpoctl.analysis.sweeps.tables import interval_kind, varying
from grpoctl.analysis.sweeps.wording import value_text
from grpoctl.wording import metric_text, plural

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST = 24
_CELL = 24  # characters of a parameter's value or name


def scores(of: Digest) -> Figure | None:
    """One line per candidate, at most 24; None where nothing is ranked."""
    order = of.ranking.order[:_MOST]
    if not order:
        return None
    figure = style.new_figure(10.0, 1.7 + 0.26 * len(order))
    axes = figure.add_subplot()
    style.plain(axes)
    axes.grid(visible=False, axis="y")
    axes.set_xlim(*_limits(of, order))
    for place, index in enumerate(order):
        _line(axes, of, index, place)
    if of.start is not None:
        axes.axvline(of.start, color=style.GREY, linestyle=":", linewidth=1.2, zorder=1)
    header, labels = _labels(of, order)
    axes.set_yticks(range(len(order)), labels, fontfamily="monospace", fontsize=style.SMALL)
    axes.set_ylim(len(order) - 0.4, -0.6)
    axes.text(
        -0.01, 1.0, header, transform=axes.transAxes, ha="right", va="bottom", family="monospace", fontsize=style.SMALL,
        color=style.GREY,
    )  # fmt: skip
    axes.tick_params(axis="y", length=0, pad=6)
    axes.set_xlabel(style.measured(of), fontsize=style.NORMAL)
    _legend(axes, of)
    more = len(of.ranking.order) - len(order)
    rest = f", the best {len(order)} of {len(of.ranking.order)}" if more else ""
    bar = "; bar: " + interval_kind(of.ranking.noise).removeprefix("±, [ ]: ") if of.ranking.noise else ""
    style.titled(
        figure, f"{of.document.get('study')}: candidates, best first",
        f"{plural(len(order), 'candidate')}{rest}; large dot: mean, small dots: seeds{bar}",
    )  # fmt: skip
    return figure


def _line(axes: Axes, of: Digest, index: int, place: int) -> None:
    colour = _colour(of, index)
    values = _values(of, index)
    score, interval = of.ranking.scores[index], of.ranking.intervals[index]
    low, high = axes.get_xlim()
    if not low <= score <= high:
        text = f"{metric_text(of.metric, score)}  {of.trials[index]['status']}"
        where, side = (low, "left") if score < low else (high, "right")
        axes.text(where, place, f" {text} ", color=colour, fontsize=style.SMALL, ha=side, va="center")
        return
    if interval is not None:
        axes.plot(interval, [place, place], color=colour, linewidth=2.2, solid_capstyle="butt", zorder=3)
    axes.plot([score], [place], "X" if index in of.ranking.flagged else "o", markersize=7.5, color=colour, zorder=4)
    if len(values) > 1:
        axes.plot(
            values, [place] * len(values), "o", markersize=3.4, color=style.GREY, markeredgecolor="white",
            markeredgewidth=0.5, zorder=5,
        )  # fmt: skip


def _values(of: Digest, index: int) -> list[float]:
    return [value for value in map(number, of.trials[index].get("values") or ()) if value is not None]


def _limits(of: Digest, order: Sequence[int]) -> tuple[float, float]:
    """The range of the candidates no guard stopped: a collapsed one must not squeeze the others into a corner."""
    sound = [index for index in order if index not in of.ranking.flagged] or list(order)
    shown = [value for index in sound for value in [*_values(of, index), *(of.ranking.intervals[index] or ())]]
    shown += [of.start] if of.start is not None else []
    low, high = min(shown), max(shown)
    room = 0.05 * (high - low) or 0.05 * abs(high) or 0.05
    return low - room, high + room


def _colour(of: Digest, index: int) -> str:
    if index in of.ranking.flagged:
        return style.RED
    return style.BLUE if index in of.ranking.indistinguishable else style.INK


def _legend(axes: Axes, of: Digest) -> None:
    from matplotlib.lines import Line2D

    order = of.ranking.order[:_MOST]
    kinds = {_colour(of, index) for index in order}
    entries = [
        (
            style.BLUE,
            "o",
            "the best, and not significantly different" if of.ranking.noise else "one seed: no significance test",
        ),
        (style.INK, "o", "significantly worse"),
        (style.RED, "X", "a guard stopped some of its runs"),
    ]
    handles = [
        Line2D([], [], color=colour, marker=marker, linestyle="-" if of.ranking.noise else "", label=text)
        for colour, marker, text in entries
        if colour in kinds
    ]
    if of.start is not None:
        handles.append(Line2D([], [], color=style.GREY, linestyle=":", label="start of GRPO"))
    axes.figure.legend(handles=handles, loc="outside lower right", ncols=2, frameon=False, fontsize=style.SMALL)


def _labels(of: Digest, order: Sequence[int]) -> tuple[str, list[str]]:
    """(header, one text per candidate), columns padded for a monospaced font."""
    keys = varying(of)
    rows = [["#", *(of.names[key] for key in keys)]]
    named = any(of.trials[index].get("name") for index in order)
    rows[0] += ["name"] if named else []
    for index in order:
        trial = of.trials[index]
        row = [str(index), *(value_text(trial["params"][key]) if key in trial["params"] else "-" for key in keys)]
        rows.append([*row, *([str(trial.get("name") or "")] if named else [])])
    cells = [[style.shortened(cell, _CELL) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    texts = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]
    return texts[0], texts[1:]
