"""Notebooks and pages as lines."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from core.errors import SpecError
from grpoctl.diagnose.readers.base import Source
from grpoctl.diagnose.readers.console import READER
from grpoctl.diagnose.readers.documents import is_document, lines_of, text_of_html

TABLE = (
    "<style>td {x: 1}</style><table border='1'><thead><tr><th>Step</th><th>Training Loss</th><th>reward</th><th>kl</th>"
    "</tr></thead><tbody><tr><td>1</td><td>0.000000</td><td>0.25</td><td>0.0</td></tr>"
    "<tr><td>2</td><td>0.000100</td><td>0.5</td><td>0.01</td></tr>"
)  # cut off: no end


def test_a_table_of_html() -> None:
    lines = [line for line in text_of_html(TABLE).split("\n") if line]
    assert lines == ["Step\tTraining Loss\treward\tkl", "1\t0.000000\t0.25\t0.0", "2\t0.000100\t0.5\t0.01"]


def test_a_notebook(tmp_path: Path) -> None:
    cells = [
        {"cell_type": "code", "source": ["x = 1\n", "num_generations = 8\n"], "outputs": [
            {"output_type": "stream", "text": ["loading\n"]},
            {"output_type": "display_data", "data": {"text/html": [TABLE], "text/plain": ["<IPython>"]}},
        ]},
        {"cell_type": "markdown", "source": "words"},
    ]  # fmt: skip
    file = tmp_path / "train.ipynb"
    file.write_text(json.dumps({"cells": cells}))
    assert is_document(file)
    source = Source(name=str(file), path=file)
    assert READER.knows(source)
    reading = READER.read(source)
    assert [(row["step"], row["reward/mean"], row["loss"]) for row in reading.case.rows] == [
        (1.0, 0.25, 0.0),
        (2.0, 0.5, 0.0001),
    ]
    assert reading.case.settings.num_generations == 8


def test_a_damaged_notebook_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "a.ipynb"
    file.write_text('{"cells": [')
    with pytest.raises(SpecError, match="damaged notebook"):
        list(lines_of(file))


def test_a_log_whose_completions_have_a_table_is_no_page(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text("answer: <table><tr><td>1</td></tr></table>\n" + "x" * (1 << 22))
    assert not is_document(log)
    log.write_text("my run:\n" + TABLE)  # a comment with one
    assert is_document(log)


LATEX = r"""
\begin{table}[t]
\begin{tabular}{@{}l|cc@{}}
\toprule % a rule
Step & Reward & KL \\[2pt] \midrule
1 & \textbf{0.25} & $0.01 \pm 0.002$ \\
50 & 49.4\% \tabularnewline \cmidrule(lr){2-3}
Total & \multicolumn{2}{c}{none} \\
\bottomrule
\end{tabular}
\end{table}
"""


def test_a_table_of_latex(tmp_path: Path) -> None:
    file = tmp_path / "table.tex"
    file.write_text(LATEX)
    assert is_document(file)
    lines = [line.text for line in lines_of(file) if "\t" in line.text]
    assert lines == ["Step\tReward\tKL", "1\t0.25\t0.01 ± 0.002", "50\t49.4%", "Total\tnone\t"]
    rows = READER.read(Source(name=str(file), path=file)).case.rows
    assert [(row["step"], row["reward/mean"]) for row in rows] == [(1, 0.25), (50, pytest.approx(0.494))]


def test_a_table_of_latex_that_never_ends_takes_no_time(tmp_path: Path) -> None:
    steps = "".join(f"step={at} reward=0.{at % 9} kl=0.01\n" for at in range(1, 51))
    for name, text in (
        ("run.log", steps + (r"\begin{tabular}{c} 1 " * 20 + "\n") * 1000),
        ("notes.md", steps + (r"\begin{tabular}{c} 1 " * 20 + "\n") * 1000),
        ("open.tex", r"\begin{tabular}{" * 40_000),
        ("braces.tex", r"\begin{tabular}{c} " + "{" * 200_000 + r"\end{tabular}" + r"\textbf{" * 50_000),
    ):
        (tmp_path / name).write_text(text)
        begun = time.process_time()
        read = list(lines_of(tmp_path / name))
        assert read
        assert time.process_time() - begun < 5


def test_a_completion_with_latex_is_no_page(tmp_path: Path) -> None:
    """A log stays a log: what stands behind a `<script` is not left out."""
    lines = [f"step={at} reward=0.{at} kl=0.0{at}" for at in range(1, 9)]
    lines[1:1] = [r"\begin{tabular}{cc} 1 & 2 \\ \end{tabular}", "<answer><script>x"]
    file = tmp_path / "train.log"
    file.write_text("\n".join(lines))
    assert not is_document(file)
    assert len(READER.read(Source(name=str(file), path=file)).case.rows) == 8
