"""A CUDA graph: what a function launches on the GPU is recorded once and launched as a whole. The same numbers.

A token of a small batch is a thousand kernels of some microseconds each; the CPU takes longer to launch one than the
GPU to run it. Only what the function launches is recorded, with the addresses it is launched with: whatever Python does
in it, and whatever number it hands to an operation, stays as it was. So it may read nothing but tensors that stand
where they are, and may not ask the GPU for anything.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial

import torch
from torch import Tensor

Launch = Callable[[], Tensor]
Record = Callable[[Launch], Launch]


def record_cuda_graph(run: Launch) -> Launch:
    """What replays `run` and gives the tensor that it gave, filled anew. Raises RuntimeError where CUDA cannot."""
    with suppress(torch.OutOfMemoryError):
        return _recorded(run)
    # A recording takes fresh memory only, none that was kept; and out here nothing holds on to the one that failed.
    torch.cuda.empty_cache()
    return _recorded(run)


def stop_recording(record: Record) -> None:
    """Do not record again in this process: it has failed, and each failure may cost memory for good."""
    for device in [device for device, one in RECORDERS.items() if one is record]:
        del RECORDERS[device]


def _recorded(run: Launch) -> Launch:
    stream, current = torch.cuda.Stream(), torch.cuda.current_stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(current)
    try:
        with torch.cuda.stream(stream):
            with _never_waiting():
                run()  # what libraries set up when they are first used must not be recorded
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            # Other threads, NCCL's among them, may ask CUDA for what a recording thread may not.
            graph.capture_begin(capture_error_mode="thread_local")
            result: Tensor | None = None
            try:
                result = run()
            finally:
                # What was begun must be ended, also where it cannot be ended well: then `run` has said why.
                with nullcontext() if result is not None else suppress(RuntimeError):
                    graph.capture_end()
    finally:
        current.wait_stream(stream)
    return partial(_replay, graph, result)


def _replay(graph: torch.cuda.CUDAGraph, result: Tensor) -> Tensor:
    graph.replay()
    return result


@contextmanager
def _never_waiting() -> Iterator[None]:
    """What would make the CPU wait raises RuntimeError here, and not in a recording, which it would spoil."""
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Synchronization debug mode")  # that it is a prototype
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


RECORDERS: dict[str, Record] = {"cuda": record_cuda_graph}
