"""What is asked of CUDA when a graph is recorded, in order; a graph itself takes a GPU (benchmarks/gpu.py)."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

from core.rollout.recording import cuda_graph


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


def test_a_function_is_run_once_beside_then_recorded_then_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda, given = Cuda(monkeypatch), torch.ones(1)

    def run() -> Tensor:
        cuda.said.append("run")
        return given

    replay = cuda_graph(run)
    before = ["side waits for main", "on side", "run", "synchronized", "begin", "run", "end", "back"]
    assert cuda.said == [*before, "main waits for side"]
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
        cuda_graph(run)
    assert cuda.said[-2:] == ["run", "end"]
