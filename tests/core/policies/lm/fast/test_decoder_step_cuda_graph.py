"""What is asked of CUDA when a graph is recorded, in order; a graph itself takes a GPU (benchmarks/gpu.py)."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

from core.policies.lm.fast import decoder_step
from core.policies.lm.fast.decoder_step import record_cuda_graph


class Cuda:
    """Writes down what it is asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.said: list[str] = []
        cuda = self

        class Stream:
            def __init__(self, name: str = "side") -> None:
                self.name = name

            def wait_stream(self, other: Stream) -> None:
                cuda.said.append(f"{self.name} waits for {other.name}")

        class Graph:
            # A name that torch does not have would be found out on a GPU only.
            def capture_begin(self, *, capture_error_mode: str) -> None:
                assert capture_error_mode in ("global", "thread_local", "relaxed")
                assert "capture_error_mode" in inspect.signature(torch.cuda.graphs.CUDAGraph.capture_begin).parameters
                cuda.said.append("begin")

            def capture_end(self) -> None:
                cuda.said.append("end")

            def replay(self) -> None:
                cuda.said.append("replay")

        @contextmanager
        def stream(chosen: Stream) -> Iterator[None]:
            cuda.said.append(f"on {chosen.name}")
            yield
            cuda.said.append("back")

        monkeypatch.setattr(torch.cuda, "Stream", Stream)
        monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
        monkeypatch.setattr(torch.cuda, "stream", stream)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda: Stream("main"))
        monkeypatch.setattr(torch.cuda, "synchronize", lambda: cuda.said.append("synchronized"))
        monkeypatch.setattr(torch.cuda, "empty_cache", lambda: cuda.said.append("emptied"))
        monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: 0)
        monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", lambda mode: cuda.said.append(f"waiting is {mode}"))


def test_a_function_is_run_once_beside_then_recorded_then_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda, given = Cuda(monkeypatch), torch.ones(1)

    def run() -> Tensor:
        cuda.said.append("run")
        return given

    replay = record_cuda_graph(run)
    first = ["waiting is error", "run", "waiting is 0", "synchronized"]
    assert cuda.said == ["side waits for main", "on side", *first, "begin", "run", "end", "back", "main waits for side"]
    assert replay() is given
    assert cuda.said[-1] == "replay"


def test_a_recording_that_fails_is_ended_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = Cuda(monkeypatch)

    def run() -> Tensor:
        cuda.said.append("run")
        if "begin" in cuda.said:
            raise RuntimeError("operation not permitted when stream is capturing")
        return torch.ones(1)

    with pytest.raises(RuntimeError, match="not permitted"):
        record_cuda_graph(run)
    assert cuda.said[-3:] == ["run", "end", "main waits for side"]


def test_what_waits_raises_before_anything_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = Cuda(monkeypatch)

    def run() -> Tensor:
        raise RuntimeError("called a synchronizing CUDA operation")

    with pytest.raises(RuntimeError, match="synchronizing"):
        record_cuda_graph(run)
    assert "begin" not in cuda.said
    assert cuda.said[-2:] == ["waiting is 0", "main waits for side"]  # as it was


def test_memory_that_was_kept_is_given_back_before_it_is_said_to_have_run_out(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = Cuda(monkeypatch)
    held: list[weakref.ref[Tensor]] = []
    there: list[bool] = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: there.extend(one() is not None for one in held))

    def run() -> Tensor:
        table = torch.ones(1)
        held.append(weakref.ref(table))
        if len(held) == 2:  # the first that is recorded
            raise torch.OutOfMemoryError("CUDA out of memory")
        return table

    assert record_cuda_graph(run)().tolist() == [1.0]
    assert there == [False, False]  # what the failed one had is nobody's any more, or it could not be given back
    assert cuda.said.count("begin") == 2
    with pytest.raises(torch.OutOfMemoryError):
        record_cuda_graph(lambda: (_ for _ in ()).throw(torch.OutOfMemoryError("CUDA out of memory")))


def test_a_recorder_that_failed_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder_step, "RECORDERS", {"cuda": record_cuda_graph})
    decoder_step.stop_recording(lambda run: run)
    assert {"cuda": record_cuda_graph} == decoder_step.RECORDERS
    decoder_step.stop_recording(record_cuda_graph)
    assert decoder_step.RECORDERS == {}
