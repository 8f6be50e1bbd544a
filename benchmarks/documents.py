"""The tables of document 000 beside what its own log gives.

    python benchmarks/documents.py PATH/TO/training_p30.log.gz

The log is that of github.com/beita6969/colab-grpo (logs/training_p30.log). What each table counts is said where it is
counted here; a row that differs is marked. docs/cases/p30.md has the result.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from core.health.case import Case
from core.health.examine import facts
from grpoctl.diagnose.readers.base import Source
from grpoctl.diagnose.readers.seed_log import READER

Cell = str | int | float
# What the document prints: section 3.2 by count, 3.3 by workflows, 3.4 as (kinds, workflows).
PATTERNS = {
    "Custom -> Programmer -> Review ? Revise : done": 115,
    "Custom -> Programmer -> Review -> Revise": 69,
    "Programmer": 47,
    "Custom -> Programmer": 21,
    "Custom -> Programmer -> Review": 18,
    "Programmer -> Review ? Revise : done": 13,
    "Programmer -> Review -> Revise": 10,
    "Custom": 8,
    "Programmer -> Review": 6,
    "Custom -> Review ? Revise : done": 5,
}
OPERATORS = {"Custom": 312, "Review": 284, "Revise": 284, "Programmer": 208, "ScEnsemble": 1}
SHAPES = {"conditional": (5, 152), "chain": (10, 154), "single": (3, 60), "loop": (0, 0)}


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """One table: rows of (what, document, log)."""

    section: str
    rows: Sequence[tuple[str, Cell, Cell]]

    @property
    def reproduces(self) -> bool:
        """Whether every row agrees, within the document's rounding."""
        return all(_same(document, log) for _, document, log in self.rows)

    def lines(self) -> Iterator[str]:
        """The table as markdown."""
        yield f"{self.section}: {'reproduces' if self.reproduces else 'does not reproduce'}\n"
        yield "| | document | log | |"
        yield "|---|---|---|---|"
        for what, document, log in self.rows:
            yield f"| {what} | {_shown(document)} | {_shown(log)} | {'' if _same(document, log) else 'differs'} |"
        yield ""


def tables(case: Case) -> list[Table]:
    """The five tables, counted."""
    found, valid = facts(case), [sample.text or "" for sample in case.samples if sample.valid]
    kinds = Counter(valid)
    shapes = Counter(map(shape, valid))
    share = 100 / len(valid)
    return [
        Table(
            section="1.2 statistics",
            rows=[
                ("steps", 96, found["steps"]),
                ("updates", 38, found["updates"]),
                ("updates followed by an all-fallback step", 37, found["collapsed_after_update"]),
                ("collapse rate, %", 97.4, 100 * found["collapsed_after_update"] / found["followed_updates"]),
            ],
        ),
        Table(
            section="3.1 outputs",
            rows=[
                ("DSL outputs", 570, found["samples"]),
                ("valid", 326, found["valid"]),
                ("valid, %", 57.2, 100 * found["valid"] / found["samples"]),
                ("fallback", 244, found["samples"] - found["valid"]),
                ("kinds of valid DSL, parser debris included", 20, len(kinds)),
            ],
        ),
        Table(
            section="3.2 most frequent workflows",
            rows=[
                *((f"`{text}`", count, kinds[text]) for text, count in PATTERNS.items()),
                *(
                    (f"`{text}`", "not in its ten", count)
                    for text, count in kinds.most_common(6)
                    if text not in PATTERNS
                ),
            ],
        ),
        Table(
            section="3.3 operators, as workflows that contain them",
            rows=[(name, count, sum(name in operators(text) for text in valid)) for name, count in OPERATORS.items()]
            + [("Custom, % of workflows", 95.7, share * sum("Custom" in operators(text) for text in valid))],
        ),
        Table(
            section="3.4 shapes, as workflows (kinds)",
            rows=[
                (name, f"{count} ({some})", f"{shapes[name]} ({sum(shape(kind) == name for kind in kinds)})")
                for name, (some, count) in SHAPES.items()
            ]
            + [("together", sum(count for _, count in SHAPES.values()), len(valid))],
        ),
    ]


def operators(text: str) -> list[str]:
    """The names of operators in a workflow, each as often as it stands there."""
    return re.findall("|".join(OPERATORS), text)


def shape(text: str) -> str:
    """A workflow's shape; a loop may hold a condition, a condition a chain: the first that fits."""
    if "*" in text:
        return "loop"
    if "?" in text:
        return "conditional"
    return "chain" if "->" in text else "single"


def _same(document: Cell, log: Cell) -> bool:
    if isinstance(document, str) or isinstance(log, str):
        return document == log
    return abs(document - log) <= (0.05 if isinstance(document, float) else 0) + 1e-9


def _shown(cell: Cell) -> str:
    return f"{cell:.1f}".removesuffix(".0") if isinstance(cell, float) else str(cell)


def main() -> None:
    """Prints every table, and how often an operator stands in all workflows together."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    case = READER.read(Source(name=sys.argv[1], path=Path(sys.argv[1]))).case
    for table in tables(case):
        print("\n".join(table.lines()))
    times = Counter(name for sample in case.samples if sample.valid for name in operators(sample.text or ""))
    print("operators, each time they occur: " + ", ".join(f"{name} {count}" for name, count in times.most_common()))


if __name__ == "__main__":
    main()
