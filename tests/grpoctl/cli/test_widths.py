"""What commands print in narrow and wide terminals: no word is broken, and no line of a table is wider."""

from __future__ import annotations

import re

import pytest

from grpoctl.runs.run_dir import Home
from tests.conftest import Recorded
from tests.grpoctl.cli.conftest import Grpoctl
from tests.promotable import WINNER, K, ended_study, swept

COMMANDS = ("ls", "check p30", "check p31 --simulate --pass-rate 0.3", "check advantage-study -p tiny", "show p31",
            "models", "show {study}", "show {run}", "compare p31 {run}", "gc",
            "sweep lr-study -p tiny --print-trials")  # fmt: skip
RULE = re.compile(r"[─━\s]*")


def words(text: str) -> set[str]:
    """The words of all lines that are no rule, up to a chart: that has as many labels as it has room for."""
    lines = text.partition("\neval/reward, mean over seeds")[0].splitlines()
    kept = [line for line in lines if not RULE.fullmatch(line)]
    return {word.rstrip(":") for line in kept for word in line.split()}


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_no_word_is_broken_and_no_table_is_wider_than_the_terminal(
    columns: int, grpoctl: Grpoctl, home: Home, recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = recorded(seed=1)
    recorded(learning_rate=5e-3, max_steps=3)
    study = ended_study(home, swept("advantage-study", "tiny"), [{**WINNER, K: 8}, WINNER])
    for line in COMMANDS:
        command = line.format(run=run.id, study=study.id).split()
        monkeypatch.setenv("COLUMNS", "500")
        wide = grpoctl(*command)
        monkeypatch.setenv("COLUMNS", str(columns))
        narrow = grpoctl(*command)
        assert (wide.code, narrow.code) == (0, 0), (line, narrow.err)
        assert words(wide.out) - words(narrow.out) == set(), line
        too_wide = [shown for shown in narrow.out.splitlines() if len(shown) > columns]
        # a path, an id, a command and the spec's own YAML are not broken, so that they can be copied
        spec = wide.out.partition("\nname: ")[2].splitlines()
        sentences = [shown for shown in too_wide if len(shown.split()) > 2 and shown not in spec]
        assert [shown for shown in sentences if "grpoctl " not in shown] == [], line
