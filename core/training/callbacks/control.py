"""Stops a run that somebody outside has given up: a sweep that prunes asks here after every evaluation."""

from __future__ import annotations

from collections.abc import Callable

from core.health.finding import StepTable
from core.training.callbacks.base import Callback, Ending


class Control(Callback):
    """Ends the run with what `ask` says of an evaluated step; `ask` may wait before it answers."""

    def __init__(self, ask: Callable[[int], Ending | None]) -> None:
        self._ask = ask

    def after_step(self, table: StepTable) -> Ending | None:
        """Asked after a training step that was evaluated, with its number; the row is recorded by then."""
        step = int(table[-1]["step"] or 0)
        evaluated = any(name.startswith("eval/") for name in table[-1])
        return self._ask(step) if step > 0 and evaluated else None
