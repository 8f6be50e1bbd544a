"""What this machine has for a run: the device, its free memory, cores, and room on the disk. Loads torch only where
there may be a CUDA device.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

from core.health.before.resources.memory import Place

_MEMINFO = Path("/proc/meminfo")
_GROUP = Path("/sys/fs/cgroup")


def here() -> Place:
    """The device that a run would use, and the bytes that are free on it."""
    cuda = free_cuda_memory()
    if cuda is None:
        return Place(device="cpu", memory=_free())
    return Place(device="cuda", memory=cuda, quantises=True)


def place(gib: float | None) -> Place:
    """This machine; with `gib` GiB for the run where that is given, which may then be another one's."""
    machine = here()
    return machine if gib is None else Place(device=machine.device, memory=int(gib * 2**30), quantises=True)


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def disk_free(path: Path) -> int:
    """Bytes free where `path` is, or would be."""
    there = next(folder for folder in (path.absolute(), *path.absolute().parents) if folder.exists())
    return shutil.disk_usage(there).free


def has_cuda_driver() -> bool:
    """True where there may be a CUDA device, so that torch is worth its import: Linux's own driver, or WSL's."""
    return any(Path(sign).exists() for sign in ("/proc/driver/nvidia", "/dev/nvidiactl", "/dev/dxg"))


def free_cuda_memory() -> int | None:
    """Free bytes of the first CUDA device; None where there is none."""
    if not has_cuda_driver():
        return None
    import torch

    return int(torch.cuda.mem_get_info(0)[0]) if torch.cuda.is_available() else None


def _free() -> int:
    """What the kernel says is available, or what a container's limit leaves of it."""
    return min(_available(), left_in_group())


def _available() -> int:
    with suppress(OSError, ValueError):
        for line in _MEMINFO.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def left_in_group(group: Path = _GROUP) -> int:
    """Of the container's limit (cgroup v2) what is not in use; files that are only cached count as free."""
    with suppress(OSError, ValueError, KeyError):
        limit = int((group / "memory.max").read_text(encoding="ascii"))
        used = int((group / "memory.current").read_text(encoding="ascii"))
        stat = dict(line.split() for line in (group / "memory.stat").read_text(encoding="ascii").splitlines())
        return max(0, limit - used + int(stat["inactive_file"]))
    return 2**63
