"""The first step of two trainers: a spec whose groups have a signal, and on the built-in model both agree."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.first_step import CASES, main, spec_of
from core.config.run import check_fit


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where GSM8K would be: 64 questions."""
    rows = [{"question": f"What is {n} and {n}?", "answer": f"#### {2 * n}"} for n in range(64)]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def test_every_case_is_a_run_of_g10_by_trl(folder: Path) -> None:
    for name, overrides in CASES.items():
        spec = spec_of(folder, overrides)
        check_fit(spec)
        assert (spec.name, spec.trainer.kind, list(spec.stages)) == ("g10", "trl", ["grpo"])
        assert (spec.language_model.lora is None) == (name == "all weights")
        assert spec.stages["grpo"].rows_per_step * spec.stages["grpo"].max_completion_length <= 512  # minutes, on a CPU


@pytest.mark.slow
def test_both_take_the_same_step(folder: Path, tmp_path: Path) -> None:
    main(["--gsm8k", str(folder), "--profile", "tiny", "--json", str(tmp_path / "found.json")])
    rows = json.loads((tmp_path / "found.json").read_text())["rows"]
    assert [row["case"] for row in rows] == list(CASES)
    for row in rows:
        assert row["dead_groups"] < 1
        assert row["grad_norm"][0] > 0.01
        assert row["grad_norm"][1] == pytest.approx(row["grad_norm"][0], abs=1e-3)
        assert row["loss"][1] == pytest.approx(row["loss"][0], abs=1e-4)
