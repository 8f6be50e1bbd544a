"""Writes checkpoints: every `save_steps` steps, at every best evaluation, and at the last step."""

from __future__ import annotations

from collections.abc import Callable

from core.config import CheckpointSpec
from core.health.finding import StepTable
from core.training.callbacks.base import Callback, Ending
from core.training.checkpoint import Checkpoints, Snapshot


class Checkpointing(Callback):
    """Saves what `snapshot` returns; `over` says whether the run has done all it had to."""

    def __init__(
        self, checkpoints: Checkpoints, spec: CheckpointSpec, snapshot: Callable[[], Snapshot], over: Callable[[], bool]
    ) -> None:
        self._checkpoints = checkpoints
        self._spec = spec
        self._snapshot = snapshot
        self._over = over

    def after_step(self, table: StepTable) -> Ending | None:
        """Never ends a run; raises StorageError where the disk refuses."""
        step = int(table[-1]["step"] or 0)
        due = step % self._spec.save_steps == 0 or self._over() or _is_best(table)
        if step > 0 and due and step not in self._checkpoints.steps():  # one that is there is what was resumed from
            self._checkpoints.save(self._snapshot())
        return None


def _is_best(table: StepTable) -> bool:
    """Whether the last row is an evaluation better than every one since training began."""
    value = table[-1].get("eval/reward")
    earlier = [row.get("eval/reward") for row in table[:-1] if row["step"]]
    return value is not None and all(other is None or value > other for other in earlier)
