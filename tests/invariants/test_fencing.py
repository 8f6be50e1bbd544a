"""A writer that is stopped between two of its system calls, and woken after its successor ended, changes nothing."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from typing import Any

import pytest

from tests.architecture.source import ROOT

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="benchmarks.fencing traces system calls of x86-64"),
]


def measured(schedules: int) -> dict[str, Any]:
    """What benchmarks.fencing says of so many schedules."""
    command = [sys.executable, "-m", "benchmarks.fencing", "--schedules", str(schedules), "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_a_few_schedules() -> None:
    document = measured(10)
    assert document["wrong"] == []
    assert document["first_writer"]["was superseded"] >= 3


@pytest.mark.slow
def test_many_schedules() -> None:
    document = measured(100)
    assert document["wrong"] == []
    assert document["first_writer"]["was superseded"] >= 70
