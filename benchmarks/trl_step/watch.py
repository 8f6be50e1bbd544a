"""A stopwatch: seconds that passed, and seconds of the process on all cores."""

from __future__ import annotations

import time

import torch


class Watch:
    """Starts when it is made; on CUDA what the device was asked for counts as done only when it is."""

    def __init__(self, *, cuda: bool) -> None:
        self._cuda = cuda
        self._began = self._now()

    def read(self) -> tuple[float, float]:
        """(seconds, process seconds) since the start."""
        (seconds, cpu), (began, cpu_began) = self._now(), self._began
        return seconds - began, cpu - cpu_began

    def _now(self) -> tuple[float, float]:
        if self._cuda:
            torch.cuda.synchronize()
        return time.perf_counter(), time.process_time()
