"""One sentence about a study, and the numbers behind it. A run's findings are core.health's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class StudyFinding:
    """One sentence about a study, and the numbers behind it."""

    id: str
    text: str
    numbers: Mapping[str, Any] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """The finding as a JSON object."""
        return {"id": self.id, "text": self.text, "numbers": dict(self.numbers)}
