"""Where workers may run: each slot's GPU and share of the cores, as environment variables. Nothing is started here."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from core.errors import UserError

VISIBLE = "CUDA_VISIBLE_DEVICES"
# Whoever counts cores by itself: OpenMP (torch), the BLAS libraries, and the tokenizers' thread pool.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS")


@dataclass(frozen=True, kw_only=True, slots=True)
class Slot:
    """Room for one worker. `device` is what it finds in CUDA_VISIBLE_DEVICES; None leaves that as it is."""

    number: int
    threads: int
    device: str | None = None

    def environment(self, ours: Mapping[str, str]) -> dict[str, str]:
        """Ours, with this slot's GPU and threads; a user's own smaller number of threads stays."""
        theirs = dict(ours)
        for name in THREAD_VARIABLES:
            limit = ours.get(name, "")
            fewer = limit.isdigit() and 0 < int(limit) < self.threads
            theirs[name] = limit if fewer else str(self.threads)
        if self.device is not None:
            theirs[VISIBLE] = self.device
        return theirs


def cpu_slots(workers: int, cores: int | None = None) -> tuple[Slot, ...]:
    """That many workers, which share the cores and whatever GPUs this process sees."""
    return tuple(Slot(number=number, threads=share(workers, cores)) for number in range(workers))


def check_devices(gpus: Sequence[int], instead: str) -> None:
    """Raises UserError where this machine has not all of these GPUs; `instead` says what does without any."""
    import torch

    devices = torch.cuda.device_count()
    if devices == 0:
        named = ",".join(map(str, gpus))
        raise UserError(f"got --gpus {named}, but torch sees no CUDA device here; {instead}")
    if VISIBLE not in os.environ and max(gpus) >= devices:
        raise UserError(f"got GPU {max(gpus)}; this machine has {devices}, counted from 0")


def gpu_slots(
    gpus: Sequence[int], per_gpu: int = 1, *, environ: Mapping[str, str] = os.environ, cores: int | None = None
) -> tuple[Slot, ...]:
    """`per_gpu` workers on each GPU, one of every GPU first. Numbers count within CUDA_VISIBLE_DEVICES where it is set.

    Raises UserError for a GPU that is named twice or that CUDA_VISIBLE_DEVICES does not have.
    """
    visible = (
        [device.strip() for device in environ[VISIBLE].split(",") if device.strip()] if VISIBLE in environ else None
    )
    if len(set(gpus)) != len(gpus):
        raise UserError(
            f"got --gpus {','.join(map(str, gpus))}; each GPU once, --per-gpu says how many workers it gets"
        )
    for gpu in gpus:
        if visible is not None and gpu >= len(visible):
            raise UserError(f"got GPU {gpu}; {VISIBLE}={environ[VISIBLE]!r} shows {len(visible)}, counted from 0")
    devices = [str(gpu) if visible is None else visible[gpu] for _ in range(per_gpu) for gpu in gpus]
    threads = share(len(devices), cores)
    return tuple(Slot(number=number, threads=threads, device=device) for number, device in enumerate(devices))


def share(workers: int, cores: int | None = None) -> int:
    """Threads for each of so many workers, at least one. The cores are those that this process may use."""
    return max(1, (cores or usable_cores()) // max(1, workers))


def usable_cores() -> int:
    """Cores that this process is allowed to run on."""
    return len(os.sched_getaffinity(0))
