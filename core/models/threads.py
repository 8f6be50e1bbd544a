"""How many threads torch takes, by the size of the model. Not here: a worker's share of the cores (executors.slots)."""

from __future__ import annotations

import functools

import torch

SMALL = 5_000_000  # parameters: below, a product is over before a second thread has begun, and they wait for each other


def threads(parameters: int, given: int) -> int:
    """One for a small model, else all that the process was given."""
    return 1 if parameters < SMALL else given


def take(parameters: int) -> None:
    """Torch's threads for a model of this size, also after one of another size."""
    torch.set_num_threads(threads(parameters, _given()))


@functools.cache
def _given() -> int:
    """What the process had before its first model: OMP_NUM_THREADS, its slot's share, or every core."""
    return torch.get_num_threads()
