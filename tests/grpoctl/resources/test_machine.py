"""What the machine has: containers' limits, disks that are not there yet, this process's own memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.health.before.resources.memory import Place
from grpoctl.resources import machine
from grpoctl.resources.probe import Gauge

MIB = 2**20


def group(folder: Path, limit: str) -> Path:
    (folder / "memory.max").write_text(limit)
    (folder / "memory.current").write_text("700\n")
    (folder / "memory.stat").write_text("anon 500\ninactive_file 150\n")
    return folder


@pytest.mark.parametrize(
    ("limit", "left"),
    [("1000\n", 450), ("600\n", 50), ("500\n", 0), ("max\n", 2**63)],  # limit - 700 + 150; not limited at all
)
def test_a_containers_limit_less_what_is_used(limit: str, left: int, tmp_path: Path) -> None:
    assert machine.left_in_group(group(tmp_path, limit)) == left


def test_without_such_files_there_is_no_limit(tmp_path: Path) -> None:
    assert machine.left_in_group(tmp_path) == 2**63


def test_a_given_memory_replaces_the_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "here", lambda: Place(device="cpu", memory=8 * MIB))
    assert machine.place(None) == Place(device="cpu", memory=8 * MIB)
    assert machine.place(0.5) == Place(device="cpu", memory=512 * MIB, quantises=True)


def test_this_machine_has_some_of_everything() -> None:
    assert machine.here().memory > 64 * MIB
    assert machine.cores() >= 1
    assert machine.disk_free(Path("no") / "such" / "folder") > 0


def test_a_peak_is_of_the_time_since_the_reset() -> None:
    gauge = Gauge(cuda=False)
    if not gauge.resets:
        pytest.skip("this system cannot reset a process's peak")
    block = bytearray(256 * MIB)  # zeroed pages are counted once they are written
    block[:] = b"x" * len(block)
    del block
    gauge.reset()
    before = gauge.peak()
    held = bytearray(b"x" * (32 * MIB))
    grown = gauge.peak() - before
    assert 30 * MIB < grown < 70 * MIB  # the literal, and its copy
    assert gauge.now() >= len(held)
