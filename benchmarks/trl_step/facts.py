"""What is said of the machine and of the programs beside a measurement: no names, no paths."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path
from typing import Any

import torch

from grpoctl.runs.provenance import versions

FLAGS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")


def facts() -> dict[str, Any]:
    """Date, versions, machine."""
    packages = ("grpoctl", "torch", "transformers", "peft", "trl", "datasets", "accelerate")
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "versions": {"python": platform.python_version(), **versions(packages)},
        "machine": {
            "cores": len(os.sched_getaffinity(0)),
            "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
            "architecture": platform.machine(),
            "flags": _flags(),
            "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
            "load": [round(one, 2) for one in os.getloadavg()],
        },
    }


def _flags() -> list[str]:
    file = Path("/proc/cpuinfo")
    known = set(file.read_text(encoding="utf-8").split()) if file.exists() else set()
    return [flag for flag in FLAGS if flag in known]
