"""Four problems in files, and the real ones where they are at hand."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]
WORKED = "{n} + {n} = <<{n}+{n}={sum}>>{sum}\n#### {sum}"
ROWS = [
    {"question": f"Ann has {n} eggs and buys {n} more. How many?", "answer": WORKED.format(n=n, sum=2 * n)}
    for n in (501, 2, 3, 4)
]


def write(folder: Path, name: str, rows: list[dict[str, str]]) -> None:
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """train.jsonl with 1002, 4, 6 and 8 as answers, test.jsonl with the first of them."""
    write(tmp_path, "train.jsonl", ROWS)
    write(tmp_path, "test.jsonl", ROWS[:1])
    return tmp_path


@pytest.fixture(scope="session")
def gsm8k() -> Path:
    """The folder with all 8,792 problems; skips, visibly, where it is absent."""
    found = Path(os.environ.get("GRPOCTL_TEST_DATA") or ROOT.parent / "shared" / "data") / "gsm8k"
    if not (found / "train.jsonl").is_file():
        pytest.skip(f"{found} is absent: set GRPOCTL_TEST_DATA to the folder that holds gsm8k/train.jsonl")
    return found
