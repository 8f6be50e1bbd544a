"""The memory of this process, and its peak since it was last asked: resident on the CPU, allocated on CUDA.

What is here: reading. What is not: what is measured (probing). Linux lets a process reset its own peak; elsewhere a
peak is that of the whole life, and `resets` says so.
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys
from contextlib import suppress
from pathlib import Path

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_RESET_PEAK = "5"  # see proc(5)


class Gauge:
    """Bytes of this process; `cuda`: of the current CUDA device, as torch's allocator counts them."""

    def __init__(self, *, cuda: bool) -> None:
        self._cuda = cuda
        self.resets = cuda or os.access(_CLEAR, os.W_OK)

    def now(self) -> int:
        """What is held now."""
        if self._cuda:
            import torch

            return int(torch.cuda.memory_allocated())
        return _field("VmRSS") or _life()

    def peak(self) -> int:
        """The most that was held since `reset`."""
        if self._cuda:
            import torch

            return int(torch.cuda.max_memory_allocated())
        return _field("VmHWM") or _life()

    def reset(self) -> None:
        """Forget the peak so far."""
        if self._cuda:
            import torch

            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            return
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)  # else what an earlier phase gave back still counts for this one
        with suppress(OSError):
            _CLEAR.write_text(_RESET_PEAK)


def _field(name: str) -> int | None:
    with suppress(OSError):
        for line in _STATUS.read_text(encoding="ascii").splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    return None


def _life() -> int:
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
