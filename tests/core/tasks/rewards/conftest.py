"""Judges over reward files that a test writes; all of them are closed when it ends."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.config.task import RewardSpec
from core.tasks.rewards.judge import Judge
from tests.core.tasks.rewards.judging import Judging


@pytest.fixture
def judging(tmp_path: Path) -> Iterator[Judging]:
    """`judging(source, "f", "g", timeout=1)`: a judge of the functions f and g of a file with that source."""
    judges = []

    def make(source: str, *names: str, timeout: float = 20.0, file: str = "mine.py") -> Judge:
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(source), encoding="utf-8")
        specs = [RewardSpec(function=f"{path}:{name}", timeout=timeout) for name in names or ("f",)]
        judges.append(Judge(specs, base=tmp_path))
        return judges[-1]

    yield make
    for judge in judges:
        judge.close()
