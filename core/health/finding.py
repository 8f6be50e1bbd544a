"""The record every rule returns, and the table every rule reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

Row = Mapping[str, float | None]
StepTable = Sequence[Row]
Severity = Literal["info", "warning", "error"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One sentence about a run, and the numbers behind it."""

    id: str
    severity: Severity
    summary: str
    evidence: Mapping[str, float | str] = field(default_factory=dict)

    def as_json(self) -> dict[str, object]:
        """The finding as a JSON object."""
        return {"id": self.id, "severity": self.severity, "summary": self.summary, "evidence": dict(self.evidence)}


def steps_of(table: StepTable) -> list[Row]:
    """The rows of training steps: without the evaluation before step 1."""
    return [row for row in table if (row.get("step") or 0) >= 1]


def sampled(row: Row) -> bool:
    """Whether a step drew completions; a supervised one does not."""
    return "completions/valid" in row


def all_invalid(row: Row) -> bool:
    """Whether a step's completions were all invalid: a collapsed step."""
    return row.get("completions/valid") == 0.0
