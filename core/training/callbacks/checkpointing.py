"""Writes checkpoints: every `save_steps` steps, at every best evaluation, and at the last step."""

from __future__ import annotations

from collections.abc import Callable

from core.health.finding import StepTable
from core.spec import CheckpointSpec
from core.training.callbacks.base import Callback, Ending
from core.training.checkpoint import Checkpoints, Snapshot


class Checkpointing(Callback):
    """Saves what `snapshot` returns."""

    def __init__(
        self, checkpoints: Checkpoints, spec: CheckpointSpec, snapshot: Callable[[], Snapshot], last_step: int
    ) -> None:
        self._checkpoints = checkpoints
        self._spec = spec
        self._snapshot = snapshot
        self._last_step = last_step

    def after_step(self, table: StepTable) -> Ending | None:
        """Never ends a run; raises StorageError where the disk refuses."""
        step = int(table[-1]["step"] or 0)
        snapshot_due = step % self._spec.save_steps == 0 or step == self._last_step
        if step > 0 and (snapshot_due or self._is_best(table)):
            self._checkpoints.save(self._snapshot())
        return None

    def _is_best(self, table: StepTable) -> bool:
        return table[-1].get("eval/reward") is not None and self._snapshot().progress.best_step == table[-1]["step"]
