"""The callback protocol, and how a run ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from core.health.finding import Finding, Row, StepTable

EndStatus = Literal["COMPLETED", "STOPPED_EARLY", "PRUNED", "COLLAPSED", "INVALID_ROLLOUT"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    """Why the loop ended."""

    status: EndStatus
    message: str
    finding: Finding | None = None


class Callback:
    """Does nothing. Both hooks may end the run by returning an Ending."""

    def before_update(self, row: Row) -> Ending | None:
        """Called with the step's row so far, after the rollout was scored and before any weight moves."""
        return None

    def after_step(self, table: StepTable) -> Ending | None:
        """Called with all rows when the step has been recorded; the last row is the step's."""
        return None
