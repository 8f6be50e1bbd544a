"""Test files that look at the same long runs are run by one process, so that these are made once (tests/spread.py)."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.architecture.source import ROOT
from tests.spread import LONGEST, SHARING


def arguments(file: Path) -> dict[str, set[str]]:
    """Function -> the names of its arguments, which are fixtures."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return {
        node.name: {one.arg for one in node.args.args} for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)
    }


def test_files_that_look_at_the_same_runs_stay_together() -> None:
    folder = ROOT / LONGEST
    scenarios = {name for name, asked in arguments(folder / "conftest.py").items() if "background" in asked}
    assert {"p30", "p31", "ended"} <= scenarios
    looking = set()
    for file in folder.glob("test_*.py"):
        functions = arguments(file)
        if (set().union(*functions.values()) - functions.keys()) & scenarios:  # without fixtures of its own
            looking.add(file.relative_to(ROOT).as_posix())
    assert looking == SHARING
