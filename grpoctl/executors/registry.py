"""Name -> executor: only the list of ours, and those that installed packages add."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from core import plugins
from core.errors import UserError
from grpoctl.executors.base import Executor
from grpoctl.executors.jobs import Inline
from grpoctl.executors.pool import Pool
from grpoctl.executors.slots import Slot

INLINE, POOL = "inline", "pool"
BUILT_IN = (INLINE, POOL)


def build(name: str, slots: Sequence[Slot], *, logs: Path, argv: Sequence[str]) -> Executor:
    """The executor of this name.

    Args: slots: where workers may run here. logs: a folder for what they print. argv: the command line as the list of
    processes may show it.

    Raises UserError for a name that is not installed, SpecError where a package's executor cannot be imported.
    """
    match name:
        case "inline":
            return Inline(argv=argv)
        case "pool":
            return Pool(slots, logs, argv=argv)
        case _:
            executor: Executor = _added(name).build(slots, logs, argv)
            return executor


def check_installed(name: str) -> None:
    """Raises UserError where no executor of this name is installed: before a study is made."""
    if name not in BUILT_IN:
        _added(name)


def _added(name: str) -> Any:
    """What a package adds under this name."""
    added = plugins.load("grpoctl.executors", name, BUILT_IN)
    if added is None:
        allowed = plugins.names("grpoctl.executors", BUILT_IN)
        raise UserError(f"got --executor {name}; allowed: {', '.join(allowed)}")
    return added
