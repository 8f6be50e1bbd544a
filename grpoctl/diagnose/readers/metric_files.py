"""The files in which MLflow keeps a run's metrics: a line `timestamp value step` for each value -> a long table.

A file is of one metric, by its own path (`.../metrics/train/reward`), or several were printed with a heading before
each (`head metrics/*`: `==> metrics/kl <==`). What is not here: a whole store (mlflow_runs), and what a long table
means (csv_cells).
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from core.errors import GrpoError
from grpoctl.diagnose.readers.csv_cells import STEP, Table, number, with_slashes
from grpoctl.diagnose.readers.metric_names import name_of
from grpoctl.diagnose.readers.text import text_lines

_VALUE = re.compile(r"\d{13} (\S+) (\d+)")  # milliseconds since 1970, the value, its step
_HEADING = re.compile(r"==> (.+) <==")
_PROMPT = "$ "
_FOLDER = "metrics"
_IN_A_NAME = re.compile(rf"(?:.*_)?{_FOLDER}_(.+)")  # of a file: mlruns_0_a1b2_metrics_train_reward.txt
_MOST = 1_000_000  # values


def logged_values(path: Path) -> Table | None:
    """The values as a table (metric, step, value); None for a text that has any other line."""
    with suppress(GrpoError):
        return _values(path)
    return None


def _values(path: Path) -> Table | None:
    metric = _metric_of(path.absolute())
    rows: list[tuple[int, list[str]]] = []
    for line in text_lines(path):
        text = line.text.strip()
        if heading := _HEADING.fullmatch(text):
            metric = _metric_of(Path(heading[1]))
        elif text and not text.startswith(_PROMPT):
            told = _VALUE.fullmatch(text)
            if told is None or number(told[1]) is None or len(rows) == _MOST:
                return None
            rows.append((line.number, [metric, told[2], told[1]]))
    return Table(path=path, header=["metric", STEP, "value"], rows=rows) if rows else None


def _metric_of(path: Path) -> str:
    """The metric of a file: where it is below the folder of metrics, or what the file is called."""
    below = path.parts[len(path.parts) - path.parts[::-1].index(_FOLDER) :] if _FOLDER in path.parts else ()
    inside = _IN_A_NAME.fullmatch(path.stem)
    names = ["/".join(below), with_slashes(inside[1]) if inside else "", "" if path.is_absolute() else str(path)]
    named = [name for name in [*names, path.stem] if name]
    return next((name for name in named if name_of(name) is not None), named[0])
