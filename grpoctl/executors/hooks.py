"""What a caller may hang into the execution of a run: to show it, to watch it, to end it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from core.config import RunSpec
from grpoctl.runs.run_dir import RunDir

if TYPE_CHECKING:
    from core.training.outcome import Ending


class Hooks:
    """What a caller may hang into an execution. These do nothing."""

    def started(self, spec: RunSpec, run: RunDir) -> None:
        """Called once the run is held, before anything heavy is imported."""

    def row(self, row: Mapping[str, float | None]) -> None:
        """Called after each recorded step."""

    def ending(self, row: Mapping[str, float | None]) -> Ending | None:
        """Asked after each recorded step whether the run is to end there, and how. What it raises fails the run."""
        return None

    def stage(self, text: str) -> None:
        """Called with what is done now, in a few words: before what may take long before the first step, and before
        each later evaluation.
        """

    def evaluating(self, ended: int, token: int) -> None:
        """Called before the evaluation before step 1, and as it draws: completions that have ended, and the token."""

    def waiting(self) -> None:
        """Called again and again while the run waits for its parent's word; what it raises ends the run."""

    def leaving(self) -> str:
        """Called after each step: why the run is to end with a checkpoint, to be gone on with elsewhere; else empty."""
        return ""

    def finished(self) -> None:
        """Called once the loop has ended, however it did."""
