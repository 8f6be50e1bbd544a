"""The figures: which are drawn, that odd studies break none, and that nothing global is touched."""

from __future__ import annotations

import re
import struct
import sys
from pathlib import Path
from typing import Any

import pytest

from grpoctl.analysis.sweeps.document import digest
from grpoctl.analysis.sweeps.figures import style
from grpoctl.analysis.sweeps.figures.axes import regions, two_way
from grpoctl.analysis.sweeps.figures.candidates import scores
from grpoctl.analysis.sweeps.figures.drawing import draw
from grpoctl.report import page
from tests.studies import AXES, K, advantage_study, collapse_study, ladder_study, study, trial


def drawn(document: dict[str, Any], folder: Path) -> list[str]:
    return [path.stem for path in draw(document, folder)]


def test_a_whole_study_has_all_figures(tmp_path: Path) -> None:
    folder = tmp_path / "figures"
    names = drawn(advantage_study(), folder)
    assert names == ["scores", "curves", "marginals", "importances", "two-way", "regions"]
    for name in names:
        data = (folder / f"{name}.png").read_bytes()
        width, height = struct.unpack(">II", data[16:24])
        assert data[1:4] == b"PNG"
        assert 400 <= width <= 1400
        assert 200 <= height <= 1200
    assert "matplotlib.pyplot" not in sys.modules  # no window, no figure that stays in memory


@pytest.mark.parametrize(
    ("document", "names"),
    [
        (collapse_study(), ["scores", "marginals", "two-way", "regions"]),
        (ladder_study(), ["scores"]),
        (study([]), []),
        (study([trial(0, [None], "FAILED")]), []),
        (study([trial(0, [0.5])]), ["scores"]),
        (study([trial(n, [0.0], "COLLAPSED", {K: k}) for n, k in enumerate([2, 8])], axes={K: AXES[K]}),
         ["scores", "marginals"]),
        (study([trial(0, [0.3], "PRUNED", curve=[[0, 0.25, 0.3]]), trial(1, [0.5, 0.5], curve=[[0, 1.0, 0.5]])],
               budget={}),
         ["scores", "curves"]),
        (study([trial(n, [float(n)], params={"a": v}) for n, v in enumerate(["$x$ to $", "{", "\n", "界" * 60])],
               axes={"a": {"values": []}}), ["scores", "marginals"]),
    ],
    ids=["collapse", "ladder", "empty", "failed", "one", "all collapsed", "no budget", "strange words"],
)  # fmt: skip
def test_odd_studies_break_no_figure(document: dict[str, Any], names: list[str], tmp_path: Path) -> None:
    assert drawn(document, tmp_path) == names


def test_the_title_of_the_scores_says_what_they_are_ordered_by() -> None:
    trials = [trial(0, [0.7]), trial(1, [0.6, 0.6])]
    believed = {"search": {"believed": {"1": [0.6, 0.1, 0.9]}}}
    for more, words in (
        ({}, "candidates, best first\n"),
        (believed, "candidates, those with all seeds of the last full round"),
    ):
        figure = scores(digest(study(trials, **more)))
        assert figure is not None
        assert words in figure.get_suptitle()


def test_more_is_darker_in_every_table_of_two_axes() -> None:
    for figure in (two_way(digest(advantage_study())), regions(digest(collapse_study()))):
        assert figure is not None
        (image,) = figure.axes[0].get_images()
        low, high = image.get_clim()
        bright = [sum(image.to_rgba([low + share * (high - low)])[0][:3]) for share in (0, 0.25, 0.5, 0.75, 1)]
        assert bright == sorted(bright, reverse=True)


def test_two_axes_have_the_colours_and_the_range_of_a_report() -> None:
    of = digest(advantage_study())
    figure = two_way(of)
    assert figure is not None
    (image,) = figure.axes[0].get_images()
    assert image.get_clim() == (min(of.ranking.scores.values()), max(of.ranking.scores.values()))
    light = (Path(page.__file__).parent / "templates" / "page.css").read_text(encoding="utf-8").partition("@media")[0]
    assert tuple(colour.upper() for colour in re.findall(r"--h\d: (#\w+)", light)) == style.BLUES


def test_a_figure_that_has_nothing_to_show_any_more_goes(tmp_path: Path) -> None:
    drawn(advantage_study(), tmp_path)
    assert drawn(ladder_study(), tmp_path) == ["scores"]
    assert [path.name for path in tmp_path.iterdir()] == ["scores.png"]


def test_a_disk_that_refuses_is_no_error(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    assert draw(advantage_study(), file / "figures") == []
