"""Tables with a metric's name in each row, or above the whole table."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import GrpoError
from grpoctl.diagnose.readers.base import Source
from grpoctl.diagnose.readers.registry import open_source

LONG = (
    "| step | metric | {} |\n|---|---|{}\n| 10 | reward | {} |\n| 10 | entropy | {} |\n| 20 | reward | {} |\n"
    "| 20 | entropy | {} |\n"
)
TITLED = (
    "{}\n\n| Step | Base GRPO | DAPO | notes |\n|---|---|---|---|\n| 0 | 0.2 | 0.2 | start |\n"
    "| 50 | **0.4** | 0.1 | end |\n"
)


def runs_of(text: str, folder: Path) -> dict[str, list[dict[str, float]]]:
    file = folder / "report.md"
    file.write_text(text)
    first = open_source(Source(name=str(file), path=file))
    left = ("update", "eval/slices/accuracy")
    return {
        one.run: [{name: value for name, value in row.items() if name not in left} for row in one.case.rows]  # type: ignore[misc]
        for one in (first, *first.further)
    }


def test_a_title_with_two_words_behind_its_metric(tmp_path: Path) -> None:
    told = runs_of(
        "### Val trajectory (200 problems)\n\n| step | A | B |\n|---|---|---|\n| 0 | 0.1 | 0.2 |\n| 50 | 0.2 | 0.1 |\n",
        tmp_path,
    )
    assert told["A"] == [{"step": 0, "eval/reward": 0.1}, {"step": 50, "eval/reward": 0.2}]


def test_a_metric_in_each_row(tmp_path: Path) -> None:
    one = runs_of(LONG.format("value", "---|", "0.3", "1.0", "0.4", "**1.5**"), tmp_path)
    assert one == {
        "": [{"step": 10, "reward/mean": 0.3, "entropy": 1.0}, {"step": 20, "reward/mean": 0.4, "entropy": 1.5}]
    }


def test_a_column_for_each_run(tmp_path: Path) -> None:
    text = LONG.format(
        "vanilla | clip-higher | Δ", "---|---|---|", *(f"0.{n} | 0.{n + 1} | +0.1" for n in (1, 2, 3, 4))
    )
    assert runs_of(text, tmp_path) == {
        "vanilla": [{"step": 10, "reward/mean": 0.1, "entropy": 0.2}, {"step": 20, "reward/mean": 0.3, "entropy": 0.4}],
        "clip-higher": [
            {"step": 10, "reward/mean": 0.2, "entropy": 0.3}, {"step": 20, "reward/mean": 0.4, "entropy": 0.5}
        ],
    }  # fmt: skip


@pytest.mark.parametrize(
    "title",
    [
        "Val",
        "### Validation accuracy by step",
        "Val accuracy trajectory (200 problems)",
        "**Eval reward** over training:",
    ],
)
def test_a_metric_in_the_title(title: str, tmp_path: Path) -> None:
    assert runs_of(TITLED.format(title), tmp_path) == {
        "Base GRPO": [{"step": 0, "eval/reward": 0.2}, {"step": 50, "eval/reward": 0.4}],
        "DAPO": [{"step": 0, "eval/reward": 0.2}, {"step": 50, "eval/reward": 0.1}],
    }


@pytest.mark.parametrize("columns", ["tokens/s | memory (GB)", "Min | Max", "Train | Val", "easy | hard"])
def test_columns_that_are_no_runs(columns: str, tmp_path: Path) -> None:
    with pytest.raises(GrpoError):
        runs_of(f"### Reward\n\n| step | {columns} |\n|---|---|---|\n| 0 | 1200 | 40 |\n| 10 | 1300 | 41 |\n", tmp_path)


@pytest.mark.parametrize("title", ["### Cost in dollars", "Ranking", "", "The reward of the best run stands here:"])
def test_a_title_that_names_no_metric(title: str, tmp_path: Path) -> None:
    with pytest.raises(GrpoError):
        runs_of(TITLED.format(title), tmp_path)


def test_a_table_of_single_metrics_is_not_long(tmp_path: Path) -> None:
    """The same metric of the same step twice: something else tells the rows apart."""
    rows = "".join(f"| {step} | reward | 0.{at} |\n" for step in (1, 2) for at in (1, 2))
    with pytest.raises(GrpoError):
        runs_of(f"| step | metric | value |\n|---|---|---|\n{rows}", tmp_path)


def test_columns_of_metrics_are_none_of_the_titles(tmp_path: Path) -> None:
    told = runs_of(
        "### Reward\n\n| step | entropy | kl |\n|---|---|---|\n| 1 | 0.5 | 0.1 |\n| 2 | 0.4 | 0.2 |\n", tmp_path
    )
    assert told == {"": [{"step": 1, "entropy": 0.5, "kl": 0.1}, {"step": 2, "entropy": 0.4, "kl": 0.2}]}
