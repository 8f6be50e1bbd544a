"""What the device is: name, compute capability, memory, and the versions of driver, CUDA and torch."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import suppress

from benchmarks.gpu_check.parts import Outcome, Place


def device_facts(_place: Place) -> Outcome:
    """The first CUDA device's facts as details; SKIP, with the reason, where torch sees none."""
    import torch

    if not torch.cuda.is_available():
        build = "has CUDA, but sees no device" if torch.version.cuda else "is a build without CUDA"
        return Outcome(status="SKIP", figure=f"torch {torch.__version__} {build}")
    major, minor = torch.cuda.get_device_capability()
    facts = {
        "name": torch.cuda.get_device_name(),
        "capability": f"{major}.{minor}",
        "memory_gib": round(torch.cuda.get_device_properties(0).total_memory / 2**30, 1),
        "driver": _driver(),
        "cuda": torch.version.cuda,
    }
    return Outcome(status="PASS", figure=str(facts["name"]), details=facts)


def _driver() -> str | None:
    """The version of NVIDIA's driver; None where nvidia-smi does not say."""
    tool = shutil.which("nvidia-smi")
    with suppress(OSError, subprocess.SubprocessError):
        if tool is not None:
            command = [tool, "--query-gpu=driver_version", "--format=csv,noheader"]
            return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.split()[0]
    return None
