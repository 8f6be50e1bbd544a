"""The processes that work on one run together: what each has is gathered, what one finds is told, tensors are added.

Every rank runs the same trainer on the same numbers, so all make the same decisions; only the work of a request is
shared out (core.training.shares). accelerate's PartialState makes the group and chooses its backend: NCCL where there
are CUDA devices, else gloo. Not here: starting the processes, and noticing that one died (grpoctl.executors.ranks).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")
BUCKET = 2**24  # numbers that are added in one message: many small tensors would pay for a message each
PATIENCE = timedelta(hours=2)  # for the slowest rank: rank 0 alone scores, writes and saves while the others wait


class World(Protocol):
    """Ranks 0 to size - 1. Each call must be made by all of them, in the same order."""

    @property
    def rank(self) -> int:
        """This process's number; rank 0 writes and scores."""
        ...

    @property
    def size(self) -> int:
        """How many there are."""
        ...

    def gather(self, mine: T) -> list[T]:
        """What every rank has, by rank. Tensors must be on the CPU."""
        ...

    def told(self, find: Callable[[], T]) -> T:
        """What rank 0 finds; the others do not look."""
        ...

    def add(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its sum over all ranks, the same bits everywhere."""
        ...

    def spread(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by rank 0's."""
        ...


class Alone:
    """A world of one: nothing is copied, and nothing is waited for."""

    rank, size = 0, 1

    def gather(self, mine: T) -> list[T]:
        """Its own."""
        return [mine]

    def told(self, find: Callable[[], T]) -> T:
        """What it finds."""
        return find()

    def add(self, tensors: Sequence[Tensor]) -> None:
        """They are the sums."""

    def spread(self, tensors: Sequence[Tensor]) -> None:
        """They are rank 0's."""


class Ranks:
    """Several processes of one machine, joined by accelerate. See `joined_ranks`."""

    def __init__(self, state: Any) -> None:
        self.rank, self.size = int(state.process_index), int(state.num_processes)

    def gather(self, mine: T) -> list[T]:
        """By pickle, between processes of one run: nothing from outside is read."""
        from accelerate.utils import gather_object

        found: list[T] = gather_object([mine])
        return found

    def told(self, find: Callable[[], T]) -> T:
        """What rank 0 raises ends its run, and with it the others."""
        from accelerate.utils import broadcast_object_list

        found: T = broadcast_object_list([find() if self.rank == 0 else None])[0]
        return found

    def add(self, tensors: Sequence[Tensor]) -> None:
        """By buckets of one dtype and device."""
        for bucket in _buckets(tensors):
            flat = torch.cat([one.flatten() for one in bucket])
            torch.distributed.all_reduce(flat)
            for one, total in zip(bucket, torch.split(flat, [one.numel() for one in bucket]), strict=True):
                one.copy_(total.view_as(one))

    def spread(self, tensors: Sequence[Tensor]) -> None:
        """One by one: done once a run."""
        for one in tensors:
            torch.distributed.broadcast(one, src=0)


ALONE = Alone()


@contextmanager
def joined_ranks(rank: int, size: int, meeting: Path) -> Iterator[World]:
    """The world of `size` processes that meet at this file, which must not be there yet; waits until all have come.

    Each process shows its own CUDA device as the first one. The group is taken apart afterwards, so that a process may
    join another.
    """
    from accelerate import PartialState
    from torch.distributed import FileStore  # type: ignore[attr-defined]

    ours = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": size}
    before = {name: os.environ.get(name) for name in (*ours, "MASTER_PORT")}
    os.environ.update({name: str(value) for name, value in ours.items()})
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # they are all on this machine, whose name may not resolve
    # Whoever asked accelerate anything before has made it the state of one process, which it keeps for good.
    PartialState._reset_state()
    try:
        store = FileStore(str(meeting), size)
        state = PartialState(
            cpu=not torch.cuda.is_available(), store=store, rank=rank, world_size=size, timeout=PATIENCE
        )
        yield Ranks(state)
    finally:
        with suppress(RuntimeError, ValueError):  # where another rank died there is nothing left to take apart
            _take_apart()
        PartialState._reset_state()
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def abort() -> None:
    """Make whatever this process waits for from other ranks fail: called from another thread when one has died.

    gloo fails by itself when a connection is lost; NCCL would wait for PATIENCE.
    """
    if torch.distributed.is_initialized() and torch.distributed.get_backend() == "nccl":
        from torch.distributed.distributed_c10d import _abort_process_group

        _abort_process_group()


def _take_apart() -> None:
    """NCCL is aborted here, too: taking it apart in order is done by all ranks or by none."""
    abort()
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def _buckets(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """The tensors in order, in runs of one dtype that have about BUCKET numbers."""
    bucket: list[Tensor] = []
    for one in tensors:
        full = sum(other.numel() for other in bucket) + one.numel() > BUCKET
        if bucket and (full or one.dtype != bucket[0].dtype):
            yield bucket
            bucket = []
        bucket.append(one)
    if bucket:
        yield bucket
