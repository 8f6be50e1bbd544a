"""Executes what a trainer asks for, in order, and hands finished steps to an observer with their timings."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from core.training.callbacks.base import Ending
from core.training.machine import Machine
from core.training.requests import StepDone
from core.training.trainer import Steps


class Observer(Protocol):
    """Whoever records steps."""

    def step_done(
        self,
        row: Mapping[str, float | None],
        samples: Sequence[Mapping[str, object]],
        timings: Mapping[str, float],
    ) -> None:
        """Called once a step; what it raises ends the run."""
        ...


def drive(steps: Steps, observer: Observer, machine: Machine | None = None) -> Ending:
    """Run one trainer's generator to its end. `timings` are seconds per kind of request, and `total` for the step.

    On several ranks each drives a trainer of its own; whoever is not rank 0 has an observer that records nothing.
    """
    machine = machine or Machine()
    answer: Any = None
    timings: dict[str, float] = {}
    started = time.perf_counter()
    while True:
        try:
            request = steps.send(answer)
        except StopIteration as stop:
            ending: Ending = stop.value
            return ending
        began = time.perf_counter()
        if isinstance(request, StepDone):
            total, started = began - started, began  # so recording a step counts towards the next one
            observer.step_done(request.row, request.samples, {**timings, "total": total})
            answer, timings = None, {}
            continue
        answer = request.run(machine)
        timings[request.name] = timings.get(request.name, 0.0) + time.perf_counter() - began
