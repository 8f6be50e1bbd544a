"""How much of the differences between scores each axis explains."""

from __future__ import annotations

from typing import TYPE_CHECKING

from grpoctl.analysis.collect import number
from grpoctl.analysis.sweeps.digest import Digest
from grpoctl.analysis.sweeps.figures import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
