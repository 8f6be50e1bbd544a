"""`--gpus 0,1` or `--processes 2` -> where the processes of a run are. Starting them is not here (executors.ranks)."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace

from core.errors import UserError
from grpoctl.cli.seeds import seeds_of
from grpoctl.executors.slots import VISIBLE, Slot, cpu_slots, gpu_slots, usable_cores

PER_CORE = 4  # processes; each holds a model, and more only wait for each other


def slots_of(gpus: str | None, processes: int | None) -> tuple[Slot, ...]:
    """A slot for each process, none where neither was asked for.

    Raises UserError for both, for GPUs that are not there, and for far more processes than cores.
    """
    if gpus is None:
        _check_processes(processes or 1)
        return () if processes is None else tuple(replace(slot, device="") for slot in cpu_slots(processes))
    if processes is not None:
        raise UserError("got --gpus and --processes; --gpus runs one process on each GPU, --processes uses none")
    numbers = _numbers(gpus)
    found = _cuda_devices()
    if found == 0:
        raise UserError(f"got --gpus {gpus}, but torch sees no CUDA device here; --processes N shares the cores")
    if VISIBLE not in os.environ and max(numbers) >= found:
        raise UserError(f"got GPU {max(numbers)}; this machine has {found}, counted from 0")
    return gpu_slots(numbers)


def take_first(slots: Sequence[Slot]) -> None:
    """Make this process the first of the slots: its GPU and its share of the cores, for whatever is imported later."""
    if not slots:
        return
    os.environ.update(slots[0].environment(os.environ))
    if "torch" in sys.modules:  # it read the variable when it was imported
        import torch

        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))


def _check_processes(processes: int) -> None:
    cores = usable_cores()
    if processes > PER_CORE * cores:
        raise UserError(f"got --processes {processes} on {cores} core(s); allowed: at most {PER_CORE * cores} here")


def _numbers(gpus: str) -> list[int]:
    try:
        return [int(str(number)) for number in seeds_of(None, gpus)]
    except UserError:
        raise UserError(f"got --gpus {gpus!r}; expected numbers from 0, each once, separated by commas: 0,1") from None


def _cuda_devices() -> int:
    import torch

    return torch.cuda.device_count()
