"""The peak of a process is its own, however large the one was that started it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.trl_step.peak import resident_peak

MIB = 2**20
SAYS = "from pathlib import Path; from benchmarks.trl_step.peak import resident_peak; print(resident_peak(Path('/proc/self')))"

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")


def test_a_small_process_of_a_large_one_is_small() -> None:
    held = bytearray(b"x" * 300 * MIB)
    own = resident_peak(Path("/proc/self"))
    root = Path(__file__).parents[2]
    said = subprocess.run([sys.executable, "-c", SAYS], capture_output=True, text=True, check=True, cwd=root).stdout
    assert own > len(held)
    assert 5 * MIB < int(said) < len(held)
