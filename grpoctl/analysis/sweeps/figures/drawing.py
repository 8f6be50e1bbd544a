"""Draws all figures of a study into a folder. How each looks is in a file of its own."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpoctl.analysis.sweeps.digest import Digest, digest
from grpoctl.analysis.sweeps.figures.curves import curves
from grpoctl.analysis.sweeps.figures.grids import regions, two_way
from grpoctl.analysis.sweeps.figures.importances import importances
from grpoctl.analysis.sweeps.figures.marginals import marginals
from grpoctl.analysis.sweeps.figures.scores import scores

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DPI = 110

FIGURES: Mapping[str, Callable[[Digest], Figure | None]] = {
    "scores": scores, "curves": curves, "marginals": marginals, "importances": importances, "two-way": two_way,
    "regions": regions,
}  # fmt: skip


def draw(document: Mapping[str, Any], folder: Path) -> list[Path]:
    """The PNG files drawn: those that the study has something to show in.

    A figure of an earlier attempt that has nothing to show any more is removed. A disk that refuses a figure is no
    error: the study is what counts, and the list says which figures there are.
    """
    of = digest(document)
    drawn = []
    for name, figure in FIGURES.items():
        path = folder / f"{name}.png"
        with suppress(OSError), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a letter the font lacks is drawn as a box
            found = figure(of)
            if found is None:
                path.unlink(missing_ok=True)
                continue
            folder.mkdir(parents=True, exist_ok=True)
            found.savefig(path, dpi=_DPI)
            drawn.append(path)
    return drawn
