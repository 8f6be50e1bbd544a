"""A log of one's own: lines of `STEP REWARD`, in files that end in .bandit."""

from __future__ import annotations

from core.health.case import Case
from grpoctl.diagnose.readers.base import Reading, Source


class BanditTable:
    """Two columns, no header."""

    name = "bandit-table"
    looks_for = "a file that ends in .bandit: a step and its mean reward on each line"

    def knows(self, source: Source) -> bool:
        return source.path is not None and source.path.suffix == ".bandit"

    def read(self, source: Source) -> Reading:
        assert source.path is not None
        pairs = [line.split() for line in source.path.read_text(encoding="utf-8").splitlines()]
        rows = [{"step": int(step), "reward/mean": float(reward)} for step, reward in pairs]
        return Reading(case=Case(rows=rows), kind=self.name, source=str(source.path))


READER = BanditTable()
