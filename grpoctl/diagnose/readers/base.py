"""What a reader is: it says whether a source is its own, and makes a case of it. The list of them is in opening.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from core.health.case import Case


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What the user named, and said of it.

    columns: column of a CSV -> metric (--map); settings: what is known of the configuration (--set), which goes before
    what a reader finds.
    """

    name: str  # as typed: a path, a run's id, an MLflow URI or run id
    path: Path | None  # the path, where there is something of that name
    columns: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Read:
    """A source as a case. `notes`: what the reader had to leave out or guess, a sentence each.

    extra: numbers of this format that no rule needs and the report shows (flat name -> number).
    """

    case: Case
    kind: str  # the reader's name: grpoctl, mlflow, trainer-state, console, seed-log, csv
    source: str  # what was read, as the report names it
    spec: str | None = None  # the experiment of ours it was run from
    notes: tuple[str, ...] = ()
    extra: Mapping[str, float] = field(default_factory=dict)
    document: Mapping[str, Any] | None = None  # result.json of a run of ours; before that, what it was started as


class Reader(Protocol):
    """One format. `looks_for` is what it goes by, for the message that no reader knew the source."""

    name: str
    looks_for: str

    def knows(self, asked: Asked) -> bool:
        """Whether the source is of this format; reads as little as it can, and raises nothing."""
        ...

    def read(self, asked: Asked) -> Read:
        """The case. Raises core.errors.GrpoError with one line where the source is of this format and broken."""
        ...
