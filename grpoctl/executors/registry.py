"""Name -> executor: only the list of ours, and those that installed packages add."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core import plugins
from core.errors import UserError
from grpoctl.executors.base import Executor
from grpoctl.executors.jobs import Inline
from grpoctl.executors.pool import Pool
from grpoctl.executors.slots import Slot
from grpoctl.executors.slurm import Slurm, SlurmJobs

INLINE, POOL, RAY, SLURM = "inline", "pool", "ray", "slurm"
BUILT_IN = (INLINE, POOL, RAY, SLURM)


@dataclass(frozen=True, kw_only=True, slots=True)
class Cluster:
    """Where a Ray cluster is: its `address`, or Ray's own default; `per_gpu`: workers on each GPU."""

    address: str | None = None
    per_gpu: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Surroundings:
    """What executors are built with. `slots`: where workers may run here, or as many as there are to be elsewhere.

    `logs` is the study's folder for what they print, `argv` the command line as the list of processes may show it.
    `say` is told what becomes of workers on other machines; `slurm` says what jobs there ask for, `ray` where a cluster
    is.
    """

    slots: Sequence[Slot]
    logs: Path
    argv: Sequence[str]
    say: Callable[[str], None]
    slurm: SlurmJobs
    ray: Cluster


def build(name: str, around: Surroundings) -> Executor:
    """The executor of this name.

    Raises UserError for a name that is not installed, SpecError where a package's executor cannot be imported.
    """
    match name:
        case "inline":
            return Inline(argv=around.argv)
        case "pool":
            return Pool(around.slots, around.logs, argv=around.argv)
        case "ray":
            from grpoctl.executors.ray import RayPool

            address, per_gpu = around.ray.address, around.ray.per_gpu
            return RayPool(around.slots, around.logs, argv=around.argv, address=address, per_gpu=per_gpu)
        case "slurm":
            return Slurm(len(around.slots), around.logs, around.slurm, argv=around.argv, say=around.say)
        case _:
            executor: Executor = _added(name).build(around.slots, around.logs, around.argv)
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
