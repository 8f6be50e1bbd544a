"""What the tests of reward functions share: asking a judge, and looking at processes."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path

from core.config.task import RewardSpec
from core.tasks.rewards.judge import Judge, Reward

Judging = Callable[..., Judge]
# A C call that never returns and that neither a signal handler nor another thread interrupts, as a regex that goes on
# for ever, but without burning a core: a lock that its own holder asks for again, by a library that keeps the GIL.
STUCK = (
    "import ctypes; c, lock = ctypes.PyDLL(None), ctypes.create_string_buffer(64); "
    "c.pthread_mutex_lock(lock); c.pthread_mutex_lock(lock)"
)


def reward(named: str, *, required: str = "", anything: bool = False) -> Reward:
    return Reward(
        spec=RewardSpec(function="./mine.py:f"),
        number=0,
        named=frozenset(named.split()),
        required=tuple(required.split()),
        anything=anything,
        file=None,
        sha256=None,
    )


def values(judge: Judge, completions: list[object], **columns: list[object]) -> list[float | None]:
    """What the judge's first function says of the completions, `p0`, `p1`, ... being the prompts; None for NaN."""
    prompts = [f"p{row}" for row in range(len(completions))]
    ids = [[row] for row in range(len(completions))]
    verdict = next(iter(judge.judge(prompts, completions, ids, columns).values()))
    assert all(math.isnan(verdict.values[row]) for row in verdict.lost)
    return [None if math.isnan(value) else value for value in verdict.values]


def running(pid: int) -> bool:
    """Whether a process is there and not just waiting to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def descendants(pid: int) -> set[int]:
    """The processes below one."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and running(int(entry)):
            stat = Path(f"/proc/{entry}/stat").read_text(encoding="utf-8")
            parents[int(entry)] = int(stat.rpartition(")")[2].split()[1])
    found, todo = set(), {pid}
    while todo:
        todo = {child for child, parent in parents.items() if parent in todo} - found
        found |= todo
    return found
