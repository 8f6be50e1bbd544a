"""How many rows fit into memory at once, learned by running out of it. What was learned holds for the rest of the run.

Less at a time is the same result by another path: a row's draws, its score and its share of the gradient do not depend
on which rows are beside it. Not here: what a row is (core.training.requests, core.training.update).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from core.errors import RunError
from core.training.world import ALONE, World

T = TypeVar("T")
R = TypeVar("R")
SAMPLE, SCORE, LEARN = "sampling", "scoring", "learning"
# What accelerate's list does not have: the driver's own words, and those of cuBLAS, which allocates past torch.
ALSO = ("CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED")

_log = logging.getLogger("core.training")


def out_of_memory(error: BaseException) -> bool:
    """Whether this says that a device's or the machine's memory did not suffice."""
    from accelerate.utils.memory import should_reduce_batch_size

    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    told = isinstance(error, RuntimeError) and any(words in str(error) for words in ALSO)
    return told or (isinstance(error, Exception) and bool(should_reduce_batch_size(error)))


class Room:
    """The most rows at once, for each kind of work; nothing is known at first."""

    def __init__(self) -> None:
        self._most: dict[str, int] = {}

    def most(self, kind: str, wanted: int) -> int:
        """`wanted`, or as many as are known to fit."""
        return min(wanted, self._most.get(kind, wanted))

    def whole(self, kind: str, wanted: int, attempt: Callable[[int], T], world: World = ALONE) -> T:
        """`attempt(rows at once)`, anew with half of them for as long as memory runs out on any rank.

        Raises RunError where one row at once is too much.
        """
        while True:
            rows = self.most(kind, wanted)
            found, why = _tried(lambda rows=rows: attempt(rows))  # type: ignore[misc]
            reasons = [one for one in world.gather(why) if one is not None]
            if not reasons and found is not None:
                return found
            self._halve(kind, rows, reasons[0])

    def pieces(self, kind: str, items: Sequence[T], work: Callable[[Sequence[T]], R]) -> list[R]:
        """`work` on the items, in as few pieces as fit; in order. Raises RunError as `whole` does."""
        done: list[R] = []
        at = 0
        while at < len(items):
            rows = self.most(kind, len(items) - at)
            found = self.once(kind, rows, lambda part=items[at : at + rows]: work(part))  # type: ignore[misc]
            if found is not None:
                done.append(found)
                at += rows
        return done

    def once(self, kind: str, rows: int, work: Callable[[], R]) -> R | None:
        """What `work` on so many rows gives; None where that was too many, and it is to be done again with fewer."""
        found, why = _tried(work)
        if why is not None:
            self._halve(kind, rows, why)
        return found

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


def _tried(work: Callable[[], R]) -> tuple[R | None, str | None]:
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
