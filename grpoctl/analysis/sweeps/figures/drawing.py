"""Draws all figures of a study into a folder: the list of them. How each looks is in candidates and axes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpoctl.analysis.sweeps.document import Digest, digest
from grpoctl.analysis.sweeps.figures.axes import importances, marginals, regions, two_way
from grpoctl.analysis.sweeps.figures.candidates import curves, scores

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
            drawing = figure(of)
            if drawing is None:
                path.unlink(missing_ok=True)
                continue
            folder.mkdir(parents=True, exist_ok=True)
            drawing.savefig(path, dpi=_DPI)
            drawn.append(path)
    return drawn
