"""How the metric went over a run's budget: the best, the middle of all, and those that were pruned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from grpoctl.analysis.sweeps.budget import unit_of
from grpoctl.analysis.sweeps.cost import Curve, mean_curve, seed_curves
from grpoctl.analysis.sweeps.digest import Digest
from grpoctl.analysis.sweeps.figures import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_GRID = tuple(index / 40 for index in range(41))
_MOST = 200  # curves in the background


def curves(of: Digest) -> Figure | None:
    """Mean over seeds of each candidate; None where no candidate reported anything on the way."""
    unit, each = unit_of(of.document)
    each = each if unit != "trials" else 100.0
    found = {index: mean_curve(trial.get("curve") or ()) for index, trial in of.trials.items()}
    found = {index: curve for index, curve in found.items() if curve}
    if not found:
        return None
    figure = style.new_figure(8.5, 4.8)
    axes = figure.add_subplot()
    style.plain(axes)
    sound = [index for index in of.ranking.order if index in found and index not in of.ranking.flagged]
    for index in sound[1 :: max(1, len(sound) // _MOST)]:
        axes.plot(*_scaled(found[index], each), color=style.FAINT, linewidth=0.8, zorder=1)
    _group(axes, _stopped(of)[:_MOST], each, (style.RED, "X", "run stopped by a guard"))
    pruned = [seed_curves(trial["curve"])[-1] for trial in of.of_status("PRUNED") if trial.get("curve")]
    _group(axes, pruned[:_MOST], each, (style.ORANGE, "v", "run pruned"))
    if len(sound) > 2:
        middle = _median([found[index] for index in sound])
        axes.plot(
            *_scaled(middle, each), color=style.INK, linewidth=2.2, linestyle="--", label="median of all that ended"
        )
    if sound:
        axes.plot(
            *_scaled(found[sound[0]], each), color=style.BLUE, linewidth=2.6, label=f"best (#{sound[0]})", zorder=5
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


def _group(axes: Axes, found: Sequence[Curve], each: float, how: tuple[str, str, str]) -> None:
    """Thin lines that end in a mark."""
    colour, marker, label = how
    for place, curve in enumerate(found):
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


def _median(found: Sequence[Curve]) -> Curve:
    """The median at each share of the budget where at least half of the curves have a value."""
    points = []
    for share in _GRID:
        values = sorted(value for value in (_value(curve, share) for curve in found) if value is not None)
        if values and len(values) * 2 >= len(found):
            middle = len(values) // 2
            points.append((share, values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2))
    return tuple(points)


def _value(curve: Curve, share: float) -> float | None:
    if not curve[0][0] <= share <= curve[-1][0]:
        return None
    after = next(place for place, (x, _) in enumerate(curve) if x >= share)
    (x1, y1), (x0, y0) = curve[after], curve[max(after - 1, 0)]
    return y1 if x1 == x0 else y0 + (y1 - y0) * (share - x0) / (x1 - x0)
