"""Document 000's tables beside its log: how workflows are counted, and which tables reproduce."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.documents import Table, operators, shape, tables
from grpoctl.diagnose.readers.base import Source
from grpoctl.diagnose.readers.seed_log import READER


@pytest.mark.parametrize(
    ("text", "kind", "names"),
    [
        ("Programmer", "single", ["Programmer"]),
        ("Programmer -> Custom", "chain", ["Programmer", "Custom"]),
        ("code>Custom->Programmer->Custom</code>", "chain", ["Custom", "Programmer", "Custom"]),
        ("Custom -> Review ? Revise : done", "conditional", ["Custom", "Review", "Revise"]),
        ("Custom -> (Review -> Revise) *", "loop", ["Custom", "Review", "Revise"]),
    ],
)
def test_how_a_workflow_is_counted(text: str, kind: str, names: list[str]) -> None:
    assert (shape(text), operators(text)) == (kind, names)


def test_a_row_agrees_within_the_documents_rounding() -> None:
    assert Table(section="", rows=[("a", 97.4, 97.368), ("b", 3, 3.0), ("c", "1 (2)", "1 (2)")]).reproduces
    assert not Table(section="", rows=[("a", 97.4, 97.46)]).reproduces
    assert not Table(section="", rows=[("b", 3, 4)]).reproduces
    assert not Table(section="", rows=[("c", "not in its ten", 3)]).reproduces


def test_which_tables_reproduce() -> None:
    root = Path(__file__).parents[2]
    log = Path(os.environ.get("GRPOCTL_TEST_DATA") or root.parent / "shared" / "data") / "p30" / "training_p30.log.gz"
    if not log.exists():
        pytest.skip(f"{log} is absent: set GRPOCTL_TEST_DATA to the folder that holds p30/training_p30.log.gz")
    found = tables(READER.read(Source(name=log.name, path=log)).case)
    assert [(table.section[:3], table.reproduces) for table in found] == [
        ("1.2", True), ("3.1", True), ("3.2", False), ("3.3", True), ("3.4", False)
    ]  # fmt: skip
    assert "| `Custom -> Review ? Revise : done` | 5 | 112 | differs |" in list(found[2].lines())
