"""The files of MLflow's file store: `timestamp value step` a line, named by a heading or by their own path."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import SpecError
from grpoctl.diagnose.readers.base import Reading, Source
from grpoctl.diagnose.readers.csv_table import has_known_header
from grpoctl.diagnose.readers.metric_files import logged_values
from grpoctl.diagnose.readers.registry import open_source

LINES = "1746000000123 0.5 10\n1746000181123 0.25 20\n"


def read(file: Path, text: str, **columns: str) -> Reading:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return open_source(Source(name=str(file), path=file, columns=columns))


@pytest.mark.parametrize(
    ("name", "metric"),
    [
        ("mlruns/0/a1/metrics/reward", "reward/mean"),
        ("mlruns/0/a1/metrics/train/completions/mean_length", "completions/length"),
        ("metrics/a1/metrics/kl", "kl"),
        ("mlruns_0_a1_metrics_train_reward.txt", "reward/mean"),
        ("metrics_completions_mean_length.txt", "completions/length"),
        ("kl.txt", "kl"),
        ("metrics/old/kl.txt", "kl"),
    ],
)
def test_a_file_is_of_the_metric_that_its_path_names(name: str, metric: str, tmp_path: Path) -> None:
    found = read(tmp_path / name, LINES)
    assert [(row["step"], row[metric]) for row in found.case.rows] == [(10, 0.5), (20, 0.25)]
    assert found.kind == "csv"


def test_headings_name_the_metrics_of_what_follows(tmp_path: Path) -> None:
    text = (
        f"$ head metrics/*\n==> metrics/rewards/format/mean <==\n{LINES}\n==> loss <==\n{LINES.replace('0.5', 'nan')}"
    )
    found = read(tmp_path / "shown.txt", text)
    inside = read(tmp_path / "shown.out", f"==> rewards/format/mean <==\n{LINES}")  # where `cd metrics` came before
    assert [row["rewards/format"] for row in inside.case.rows] == [0.5, 0.25]
    told = [(row["step"], row["rewards/format"], row["loss"]) for row in found.case.rows]
    assert told == [(10, 0.5, None), (20, 0.25, 0.25)]
    assert has_known_header(Source(name="shown.txt", path=tmp_path / "shown.txt"))


def test_a_metric_that_nobody_knows_may_be_mapped(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"no metric is known \(warmth\)"):
        read(tmp_path / "warmth", LINES)
    assert read(tmp_path / "warmth", LINES, warmth="kl").case.rows[0]["kl"] == 0.5


@pytest.mark.parametrize(
    "text",
    [
        LINES + "done\n",
        LINES + "1746000362123 high 30\n",
        LINES + "1746000362123 0.5\n",
        LINES + "1746000362 0.5 30\n",  # seconds
        LINES + "1746000362123 0.5 30.5\n",
        "==> metrics/reward <==\n",
        "reward: 0.5\n" + LINES,
        "\0",
        "",
    ],
)
def test_any_other_line_makes_it_another_text(text: str, tmp_path: Path) -> None:
    (tmp_path / "reward").write_text(text)
    assert logged_values(tmp_path / "reward") is None


def test_a_file_that_is_not_there_is_none(tmp_path: Path) -> None:
    assert logged_values(tmp_path / "reward") is None
