"""The device that torch computes on: its threads, how exactly a GPU multiplies, tensors on their way to it.

Not here: a worker's share of the cores (grpoctl.executors.slots), which dtype suits the device (core.models.precision).
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

SMALL = 5_000_000  # parameters: below, a product is over before a second thread has begun, and they wait for each other


def threads_for(parameters: int, available: int) -> int:
    """The threads for a model of this size: one for a small one, else all that the process was given."""
    return 1 if parameters < SMALL else available


def set_threads(parameters: int) -> None:
    """Set torch's threads for a model of this size, also after one of another size."""
    torch.set_num_threads(threads_for(parameters, given_threads()))


@functools.cache
def given_threads() -> int:
    """What the process had before its first model: OMP_NUM_THREADS, its slot's share, or every core."""
    return torch.get_num_threads()


def set_gpu_kernels() -> None:
    """Choose attention kernels that suit changing shapes, and sums that are not rounded to bfloat16 on their way."""
    # cuDNN's attention, the first choice on newer GPUs, plans anew for each shape, and micro-batches seldom share one.
    torch.backends.cuda.enable_cudnn_sdp(False)
    # Or parts of a long sum, such as the head's gradient over the vocabulary, are added in bfloat16.
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor on this device, itself where it is there, without waiting for what a GPU still has to do.

    An ordinary copy waits. One from pinned memory does not: whatever is launched after it finds it done.
    """
    if device.type == "cuda" and tensor.device.type == "cpu":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)
