"""TRL's own trainer, run here and now, and read from what it wrote: its folder and its MLflow run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from grpoctl.diagnose.readers.base import Source
from grpoctl.diagnose.readers.registry import open_source

ROOT = Path(__file__).parents[4]

pytestmark = [pytest.mark.process, pytest.mark.slow]


def test_a_real_run_is_read_and_judged(tmp_path: Path) -> None:
    options = ["--seeds", "1", "--steps", "12", "--kinds", "healthy", "lr-x100"]
    command = [sys.executable, "benchmarks/trl_runs.py", *options]
    done = subprocess.run(
        [*command, "--out", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=True, timeout=300
    )
    rows = [line.split(" | ") for line in done.stdout.splitlines() if line.startswith(("| healthy", "| lr-x100"))]
    assert [(row[0].strip("| "), *row[1:5]) for row in rows] == [(name, *["1"] * 4) for name in ("healthy", "lr-x100")]

    read = open_source(Source(name=str(tmp_path / "healthy-0"), path=None))
    assert [row["step"] for row in read.case.rows] == list(range(1, 13))
    assert read.case.settings.num_generations == 8  # by its completions: nothing else beside the state says so
    assert len(read.case.samples) == 12 * 32
    # What TRL says of a step and what its completions say are the same.
    of_step = [sample.reward or 0.0 for sample in read.case.samples if sample.step == 1]
    assert read.case.rows[0]["reward/mean"] == pytest.approx(sum(of_step) / 32, abs=1e-6)

    printed = open_source(Source(name=str(tmp_path / "healthy-0" / "train.log"), path=None))
    assert printed.kind == "console"
    assert len(printed.case.rows) == 12
    assert printed.case.rows[0]["reward/mean"] == pytest.approx(read.case.rows[0]["reward/mean"], abs=1e-3)
