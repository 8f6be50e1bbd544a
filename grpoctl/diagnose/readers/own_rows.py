"""metrics.jsonl and samples.jsonl of a run of ours -> rows and samples, each value of the kind it must be.

What is here: what may stand in a row. What is not: lines that are no JSON (grpoctl.files).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from core.errors import StorageError
from core.health.case import Sample
from core.health.finding import StepTable
from grpoctl.files import Row, read_rows

_TAIL = 1 << 22  # bytes in which the last line is looked for
_SHOWN = 40  # characters of a wrong value


def metric_rows(path: Path, rows: Sequence[Row] | None = None) -> StepTable:
    """The step table; a NaN is None. `rows` are the file's where it was read already.

    Raises StorageError for text where a number belongs and for a row without step.
    """
    read = read_rows(path) if rows is None else rows
    return [_metrics(row, f"{path}: row {number}") for number, row in enumerate(read, 1)]


def sample_rows(path: Path, most: int) -> tuple[Sample, ...]:
    """The newest `most` samples. Raises StorageError for a value of another kind than its field's."""
    rows = read_rows(path)
    numbered = list(enumerate(rows, 1))[-most:]
    return tuple(_sample(row, f"{path}: row {number}") for number, row in numbered if _is_whole(row.get("step")))


def torn(path: Path) -> bool:
    """Whether the file's last line is half a row or damaged, so that it was left out."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - _TAIL))
            data = file.read()
    except OSError:
        return False
    if not data.endswith(b"\n"):
        return bool(data)
    with suppress(ValueError):
        return not isinstance(json.loads(data[:-1].rpartition(b"\n")[2]), dict)
    return True


def _metrics(row: Mapping[str, Any], where: str) -> dict[str, float | None]:
    if not _is_whole(row.get("step")):
        raise StorageError(f"{where} has no step; move that run away, or mend the row")
    return {name: _number(row, name, where) for name in row}


def _sample(row: Mapping[str, Any], where: str) -> Sample:
    return Sample(
        step=int(row["step"]),
        row=_typed(row, "row", int, where),
        group=_typed(row, "prompt_id", str, where),
        text=_typed(row, "text", str, where),
        valid=_typed(row, "valid", bool, where),
        reward=_number(row, "reward", where),
        advantage=_number(row, "advantage", where),
    )


def _number(row: Mapping[str, Any], name: str, where: str) -> float | None:
    value = row.get(name)
    if value is None:
        return None
    if isinstance(value, (int, float)):
        with suppress(OverflowError):
            return value if math.isfinite(value) else None
    raise StorageError(f"{where}: {name}: got {_shown(value)}; a number belongs there")


def _typed(row: Mapping[str, Any], name: str, kind: type, where: str) -> Any:
    value = row.get(name)
    if value is None or (isinstance(value, kind) and (kind is bool or not isinstance(value, bool))):
        return value
    raise StorageError(f"{where}: {name}: got {_shown(value)}; {kind.__name__} belongs there")


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and 0 <= value < 10**15


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text[:_SHOWN] + ("…" if len(text) > _SHOWN else "")
