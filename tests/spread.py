"""Which tests go to which process where several run them (`pytest -n auto --dist loadfile`, as `make test` does).

A file is not torn apart: what it prepares once is prepared once. Files that look at the same long runs stay together
as well. Without `-n` nothing of this is used.
"""

from __future__ import annotations

import os
from typing import Any

from xdist.scheduler import LoadScopeScheduling

LONGEST = "tests/end_to_end/"  # begun first, so that no process waits for the others at the end
SHARING = {f"{LONGEST}test_{name}.py" for name in ("commands", "disk", "eval", "mlflow", "readme", "resume", "run")}
MOST = 4  # processes; each takes about 1 GB and seconds to import


class ByFile(LoadScopeScheduling):  # type: ignore[misc]
    """Whole files to whoever is free, in the order of collection."""

    def __init__(self, config: Any, log: Any = None) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _pending_of(self, workload: dict[str, dict[str, bool]]) -> int:
        """How many tests of its files a process has before it. Asked after each test: what is done is forgotten."""
        for scope in [scope for scope, tests in workload.items() if all(tests.values())]:
            del workload[scope]
        return int(super()._pending_of(workload))

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "the scenarios" if file in SHARING else file


def processes() -> int:
    """One for each core that is ours; 0, which is this process alone, where there is only one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, MOST) if cores > 1 else 0
