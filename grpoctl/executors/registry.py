"""Name -> executor: only the list of ours, and those that installed packages add."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core import plugins
from core.errors import UserError
from grpoctl import console
from grpoctl.executors.base import Executor
from grpoctl.executors.jobs import Inline
from grpoctl.executors.pool import Pool
from grpoctl.executors.slots import Slot
from grpoctl.executors.slurm import Slurm, SlurmJobs

INLINE, POOL, RAY, SLURM = "inline", "pool", "ray", "slurm"
BUILT_IN = (INLINE, POOL, RAY, SLURM)


@dataclass(frozen=True, kw_only=True, slots=True)
class Cluster:
    """Where an executor of several machines is. `address`: of a Ray cluster; `per_gpu`: workers on each GPU.

    `slurm`: what jobs of a SLURM cluster ask for. `say` is told what becomes of workers there.
    """

    address: str | None = None
    per_gpu: int = 1
    slurm: SlurmJobs = field(default_factory=SlurmJobs)
    say: Callable[[str], None] = console.print_note


def build(
    name: str, slots: Sequence[Slot], *, logs: Path, argv: Sequence[str], cluster: Cluster | None = None
) -> Executor:
    """The executor of this name.

    Args: slots: where workers may run here. logs: a folder for what they print. argv: the command line as the list of
    processes may show it. cluster: of the executors that need one.

    Raises UserError for a name that is not installed, SpecError where a package's executor cannot be imported.
    """
    match name:
        case "inline":
            return Inline(argv=argv)
        case "pool":
            return Pool(slots, logs, argv=argv)
        case "ray":
            from grpoctl.executors.ray import RayPool

            cluster = cluster or Cluster()
            return RayPool(slots, logs, argv=argv, address=cluster.address, per_gpu=cluster.per_gpu)
        case "slurm":
            cluster = cluster or Cluster()
            return Slurm(len(slots), logs, cluster.slurm, argv=argv, say=cluster.say)
        case _:
            executor: Executor = _added(name).build(slots, logs, argv)
            return executor


def check_installed(name: str) -> None:
    """Raises UserError where no executor of this name, or not what it needs, is installed: before a study is made."""
    if name == RAY:
        from grpoctl.executors.ray import check_ray

        check_ray()
    elif name not in BUILT_IN:
        _added(name)


def _added(name: str) -> Any:
    """What a package adds under this name."""
    added = plugins.load("grpoctl.executors", name, BUILT_IN)
    if added is None:
        allowed = plugins.names("grpoctl.executors", BUILT_IN)
        raise UserError(f"got --executor {name}; allowed: {', '.join(allowed)}")
    return added
