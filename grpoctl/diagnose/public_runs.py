"""The failed public runs that a log is compared with: public_runs.csv, which benchmarks/public_runs.py writes."""

from __future__ import annotations

import csv
import re
from functools import cache
from pathlib import Path

from core.health.likeness import PublicRun

TABLE = Path(__file__).with_suffix(".csv")
_REPOSITORY = re.compile(r"https://github\.com/([^/]+/[^/]+)")
_TITLE = 60  # characters that tell one document from another


@cache
def public_runs() -> tuple[PublicRun, ...]:
    """The runs, in the table's order."""
    with TABLE.open(newline="", encoding="utf-8") as file:
        return tuple(
            PublicRun(
                source=row["source"],
                causes=frozenset(row["causes"].split(";")),
                signs=frozenset(row["signs"].split(";")),
                looks=tuple(row["looks"].split(";")),
            )
            for row in csv.DictReader(file)
        )


def called(source: str) -> str:
    """What runs of one repository or document have in common, of the address that a case is from."""
    match = _REPOSITORY.match(source)
    return match[1] if match is not None else source[:_TITLE]
