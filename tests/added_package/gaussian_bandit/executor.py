"""An executor of one's own: the built-in one that runs jobs in this process, under another name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from grpoctl.executors.base import Executor
from grpoctl.executors.jobs import Inline
from grpoctl.executors.slots import Slot


class OneByOne:
    """What `--executor one-by-one` means."""

    def build(self, slots: Sequence[Slot], logs: Path, argv: Sequence[str]) -> Executor:
        return Inline(argv=argv)


EXECUTOR = OneByOne()
