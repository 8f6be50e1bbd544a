"""Figures of a study's candidates: their scores as they rank, and their curves over the budget of a run."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING

from grpoctl.analysis.collect import number
from grpoctl.analysis.curves import value_at
from grpoctl.analysis.sweeps.budget import Curve, mean_curve, seed_curves, unit_of
from grpoctl.analysis.sweeps.document import Digest
from grpoctl.analysis.sweeps.figures import style
from grpoctl.analysis.sweeps.tables import interval_kind, varying
from grpoctl.analysis.sweeps.wording import value_text
from grpoctl.wording import metric_text, plural

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST = 24
_CELL = 24  # characters of a parameter's value or name
_MOST_CURVES = 200  # in the background
_SHARES = tuple(index / 40 for index in range(41))  # of a run's budget, where the median curve has its points


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
    rest = f", the first {len(order)} of {len(of.ranking.order)}" if more else ""
    bar = "; bar: " + interval_kind(of.ranking.noise).removeprefix("±, [ ]: ") if of.ranking.noise else ""
    style.titled(
        figure, f"{of.document.get('study')}: candidates, {of.ranking.by}",
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
            "the best, and not significantly different" if of.ranking.noise else "no significance test",
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


def curves(of: Digest) -> Figure | None:
    """Mean over seeds of each candidate; None where no candidate reported anything on the way."""
    unit, each = unit_of(of.document)
    each = each if unit != "trials" else 100.0
    means = {index: mean_curve(trial.get("curve") or ()) for index, trial in of.trials.items()}
    means = {index: curve for index, curve in means.items() if curve}
    if not means:
        return None
    figure = style.new_figure(8.5, 4.8)
    axes = figure.add_subplot()
    style.plain(axes)
    sound = [index for index in of.ranking.order if index in means and index not in of.ranking.flagged]
    for index in sound[1 :: max(1, len(sound) // _MOST_CURVES)]:
        axes.plot(*_scaled(means[index], each), color=style.FAINT, linewidth=0.8, zorder=1)
    _group(axes, _stopped(of)[:_MOST_CURVES], each, (style.RED, "X", "run stopped by a guard"))
    pruned = [seed_curves(trial["curve"])[-1] for trial in of.of_status("PRUNED") if trial.get("curve")]
    _group(axes, pruned[:_MOST_CURVES], each, (style.ORANGE, "v", "run pruned"))
    if len(sound) > 2:
        middle = _median([means[index] for index in sound])
        axes.plot(
            *_scaled(middle, each), color=style.INK, linewidth=2.2, linestyle="--", label="median of all that ended"
        )
    if sound:
        axes.plot(
            *_scaled(means[sound[0]], each), color=style.BLUE, linewidth=2.6, label=f"best (#{sound[0]})", zorder=5
        )
    if of.start is not None:
        axes.axhline(of.start, color=style.GREY, linestyle=":", linewidth=1.2, label="start of GRPO")
    axes.set_xlim(0, each * 1.02)
    axes.set_xlabel(f"{unit} of one run" if unit != "trials" else "share of a run [%]", fontsize=style.NORMAL)
    axes.set_ylabel(style.measured(of), fontsize=style.NORMAL)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    figure.legend(loc="outside lower right", ncols=3, frameon=False, fontsize=style.SMALL)
    old = sum(bool(trial.get("curve_possibly_wrong")) for trial in of.trials.values())
    style.titled(
        figure,
        f"{of.document.get('study')}: training curves",
        "each line: one candidate, mean over its seeds; with a mark at its end: one run"
        + (f"; {old} from an older version, may be wrong" if old else ""),
    )
    return figure


def _group(axes: Axes, curves: Sequence[Curve], each: float, how: tuple[str, str, str]) -> None:
    """Thin lines that end in a mark."""
    colour, marker, label = how
    for place, curve in enumerate(curves):
        xs, ys = _scaled(curve, each)
        axes.plot(xs, ys, color=colour, linewidth=0.9, alpha=0.75, zorder=2)
        axes.plot(
            xs[-1:], ys[-1:], marker, color=colour, markersize=5, linestyle="", label=label if place == 0 else None
        )


def _stopped(of: Digest) -> list[Curve]:
    """The runs of flagged candidates that ended before their budget did; a mean over seeds would jump there."""
    curves = [curve for index in of.ranking.flagged for curve in seed_curves(of.trials[index].get("curve") or ())]
    return [curve for curve in curves if curve[-1][0] < 1]


def _scaled(curve: Curve, each: float) -> tuple[list[float], list[float]]:
    return [share * each for share, _ in curve], [value for _, value in curve]


def _median(curves: Sequence[Curve]) -> Curve:
    """The median at each share of the budget where at least half of the curves have a value."""
    points = []
    for share in _SHARES:
        values = [value for value in (value_at(curve, share) for curve in curves) if value is not None]
        if values and len(values) * 2 >= len(curves):
            points.append((share, median(values)))
    return tuple(points)
