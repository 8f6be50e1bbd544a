"""The peak of a process is its own, however large the one was that started it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.trl_step.peak import resident_peak

MIB = 2**20

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")


def test_a_small_process_of_a_large_one_is_small() -> None:
    held = bytearray(b"x" * 200 * MIB)
    with subprocess.Popen(
        [sys.executable, "-c", "print('ready', flush=True); input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        small, own = resident_peak(Path("/proc", str(child.pid))), resident_peak(Path("/proc/self"))
        child.communicate(b"\n")
    assert own > len(held) > 2 * small > 2 * MIB
