"""The seed project's data, where it is at hand."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session")
def outcome_rows() -> list[dict[str, str]]:
    """The 570 samples of P30's log; skips, visibly, where the file is absent."""
    data = Path(os.environ.get("GRPOCTL_TEST_DATA") or ROOT.parent / "shared" / "data")
    file = data / "p30" / "outcomes.csv"
    if not file.is_file():
        pytest.skip(f"{file} is absent: set GRPOCTL_TEST_DATA to the folder that holds p30/outcomes.csv")
    with file.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))
