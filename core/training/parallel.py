"""The processes that work on one run together, and how many rows fit into the memory of each.

Every rank runs the same trainer on the same numbers, so all make the same decisions; only the work of a request is
shared out (core.training.requests). Shares are runs of neighbours whose sizes differ by one at most, so parts in the
order of their ranks are in the order of the whole. accelerate's PartialState makes the group and chooses its backend:
NCCL where there are CUDA devices, else gloo.

How many rows fit is learned by running out of memory, and holds for the rest of the run. Less at a time is the same
result by another path: a row's draws, its score and its share of the gradient do not depend on the rows beside it.

Not here: starting the processes, and noticing that one died (grpoctl.executors.ranks).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from core.errors import RunError
from core.policies.base import Policy, Rollout

T = TypeVar("T")
R = TypeVar("R")
_log = logging.getLogger("core.training")
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

    def from_rank_0(self, find: Callable[[], T]) -> T:
        """What `find` returns on rank 0, on every rank; the others do not call it."""
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

    def from_rank_0(self, find: Callable[[], T]) -> T:
        """What `find` returns."""
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

        by_rank: list[T] = gather_object([mine])
        return by_rank

    def from_rank_0(self, find: Callable[[], T]) -> T:
        """What rank 0 raises ends its run, and with it the others."""
        from accelerate.utils import broadcast_object_list

        value: T = broadcast_object_list([find() if self.rank == 0 else None])[0]
        return value

    def add(self, tensors: Sequence[Tensor]) -> None:
        """By buckets of one dtype and device."""
        for bucket in _buckets(tensors):
            flat = torch.cat([tensor.flatten() for tensor in bucket])
            torch.distributed.all_reduce(flat)
            for tensor, total in zip(bucket, torch.split(flat, [tensor.numel() for tensor in bucket]), strict=True):
                tensor.copy_(total.view_as(tensor))

    def spread(self, tensors: Sequence[Tensor]) -> None:
        """One by one: done once a run."""
        for tensor in tensors:
            torch.distributed.broadcast(tensor, src=0)


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
            abort()  # of NCCL's group, which is taken apart in order by all ranks or by none
            if torch.distributed.is_initialized():
                torch.distributed.destroy_process_group()
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


def _buckets(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """The tensors in order, in runs of one dtype that have about BUCKET numbers."""
    bucket: list[Tensor] = []
    for tensor in tensors:
        full = sum(other.numel() for other in bucket) + tensor.numel() > BUCKET
        if bucket and (full or tensor.dtype != bucket[0].dtype):
            yield bucket
            bucket = []
        bucket.append(tensor)
    if bucket:
        yield bucket


SAMPLE, SCORE, LEARN = "sampling", "scoring", "learning"
# What accelerate's list does not have: the driver's own words, and those of cuBLAS, which allocates past torch.
ALSO = ("CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED")


def out_of_memory(error: BaseException) -> bool:
    """True when the error says that a device's or the machine's memory did not suffice."""
    from accelerate.utils.memory import should_reduce_batch_size

    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    known = isinstance(error, RuntimeError) and any(words in str(error) for words in ALSO)
    return known or (isinstance(error, Exception) and bool(should_reduce_batch_size(error)))


class Room:
    """The most rows at once, for each kind of work; nothing is known at first."""

    def __init__(self) -> None:
        self._most: dict[str, int] = {}

    def most(self, kind: str, rows: int) -> int:
        """`rows`, or as many as are known to fit."""
        return min(rows, self._most.get(kind, rows))

    def whole(self, kind: str, wanted: int, attempt: Callable[[int], T], world: World = ALONE) -> T:
        """`attempt(rows at once)`, anew with half of them for as long as memory runs out on any rank.

        Raises RunError where one row at once is too much.
        """
        while True:
            rows = self.most(kind, wanted)
            result, why = _attempt(lambda rows=rows: attempt(rows))  # type: ignore[misc]
            reasons = [reason for reason in world.gather(why) if reason is not None]
            if not reasons and result is not None:
                return result
            self._halve(kind, rows, reasons[0])

    def pieces(self, kind: str, items: Sequence[T], work: Callable[[Sequence[T]], R]) -> list[R]:
        """`work` on the items, in as few pieces as fit; in order. Raises RunError as `whole` does."""
        done: list[R] = []
        at = 0
        while at < len(items):
            rows = self.most(kind, len(items) - at)
            result = self.once(kind, rows, lambda part=items[at : at + rows]: work(part))  # type: ignore[misc]
            if result is not None:
                done.append(result)
                at += rows
        return done

    def once(self, kind: str, rows: int, work: Callable[[], R]) -> R | None:
        """What `work` on so many rows gives; None where that was too many, and it is to be done again with fewer."""
        result, why = _attempt(work)
        if why is not None:
            self._halve(kind, rows, why)
        return result

    def _halve(self, kind: str, rows: int, why: str) -> None:
        if rows <= 1:
            raise RunError(
                f"out of memory while {kind}, one row at a time: {why}; lower stages.*.max_completion_length, set "
                "model.gradient_checkpointing true or model.dtype bfloat16, or take a smaller profile"
            )
        self._most[kind] = rows // 2
        _log.warning(
            "out of memory while %s with %d rows at once; from here on at most %d (the result is the same): %s",
            kind, rows, rows // 2, why,
        )  # fmt: skip


def _attempt(work: Callable[[], R]) -> tuple[R | None, str | None]:
    """(what it gives, None), or (None, why memory did not suffice). Everything that it held is given back."""
    try:
        return work(), None
    except (RuntimeError, MemoryError) as error:
        if not out_of_memory(error):
            raise
        why = " ".join(str(error).split())[:200] or type(error).__name__
    from accelerate.utils.memory import clear_device_cache  # only now: the traceback held on to the tensors

    clear_device_cache(garbage_collection=True)
    return None, why


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """What a request is computed with; one for a run, since what `room` has learned holds to its end."""

    world: World = ALONE
    room: Room = field(default_factory=Room)


def share(world: World, count: int, rank: int | None = None) -> range:
    """Which of `count` things this rank does, or another one."""
    rank = world.rank if rank is None else rank
    return range(count * rank // world.size, count * (rank + 1) // world.size)


def own_rows(world: World, rollout: Rollout, rows: Sequence[int]) -> Sequence[int]:
    """The rows that this rank learns from: whole groups."""
    if world.size == 1 or not len(rows):
        return rows
    _, sizes = torch.unique_consecutive(rollout.prompt_N[list(rows)], return_counts=True)
    ends = [0, *sizes.cumsum(0).tolist()]
    mine = share(world, len(sizes))
    return rows[ends[mine.start] : ends[mine.stop]]


def same_start(policy: Policy, world: World) -> None:
    """Every rank starts from rank 0's weights: how devices round must not tell them apart."""
    with torch.no_grad():
        world.spread([parameter for _, parameter in sorted(policy.trainable().items())])


def add_gradients(parameters: Sequence[Tensor], world: World) -> None:
    """Every parameter's gradient becomes the sum over all ranks.

    One that no rank has a gradient for keeps none: AdamW would decay it. A rank that had no rows adds nothing.
    """
    if world.size == 1:
        return
    by_rank = world.gather([parameter.grad is not None for parameter in parameters])
    learning = [parameter for parameter, has in zip(parameters, zip(*by_rank, strict=True), strict=True) if any(has)]
    for parameter in learning:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    world.add([parameter.grad for parameter in learning if parameter.grad is not None])
