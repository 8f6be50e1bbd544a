"""What can be said about a run that was read: facts, settings, findings, as one record and as its JSON document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from core.health.case import bounded, huge
from core.health.examine import examine, facts
from core.health.finding import SEVERITIES, Finding, Severity
from core.health.statistics import HUGE
from grpoctl.diagnose.readers.base import Read
from grpoctl.files import finite


@dataclass(frozen=True, kw_only=True, slots=True)
class Diagnosis:
    """A source, its numbers (flat name -> number) and what the rules found, the gravest and most certain first."""

    asked: str  # the source as it was named
    read: Read
    facts: Mapping[str, float]
    findings: tuple[Finding, ...]
    proposed: str = ""  # the command that runs the deciding experiment, where it was written

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the run that are known."""
        return {name: value for name, value in asdict(self.read.case.settings).items() if value is not None}

    def counts(self) -> dict[Severity, int]:
        """How many findings there are of each severity, the gravest first; severities without one are left out."""
        found = {severity: sum(one.severity == severity for one in self.findings) for severity in SEVERITIES}
        return {severity: count for severity, count in found.items() if count}

    def as_json(self) -> dict[str, Any]:
        """The document of `grpoctl diagnose --json` (docs/cli.md); a number that is not finite is null in it."""
        document = {
            "schema": 1,
            "source": self.read.source,
            "kind": self.read.kind,
            "facts": dict(self.facts),
            "settings": self.settings,
            "notes": list(self.read.notes),
            "findings": [finding.as_json() for finding in self.findings],
        }
        plain = finite(document)
        assert isinstance(plain, dict)
        return plain


def diagnose(read: Read, asked: str = "") -> Diagnosis:
    """All that the rules say about a case, and its facts: those of every source, then those of its format.

    `asked` is how the user named the source, where that is not how the report names it.
    """
    if count := huge(read.case):
        note = f"{count} numbers are of {HUGE:g} or more: no training computes in such, each counts as no number"
        read = replace(read, case=bounded(read.case), notes=(*read.notes, note))
    numbers = {**facts(read.case), **read.extra}
    return Diagnosis(asked=asked or read.source, read=read, facts=numbers, findings=tuple(examine(read.case)))
