"""What a metric's value cannot be: a share outside 0 to 1, a negative count or deviation. What is not here: files.

A CSV is refused for it, since it can be mended by hand (csv_table); of any other source the value is left out.
"""

from __future__ import annotations

from core.health.finding import StepTable
from core.metrics import declared

_SHARES = ("groups/right",)  # of foreign logs
_SLACK = 1e-6  # of a mean of shares in float32
_NOT_NEGATIVE = ("entropy", "grad_norm", "learning_rate", "temperature", "eval/temperature", "samples")
_DEVIATIONS = ("/std", "_std", "/std_all", "_se", "logprob_gap", "logprob_gap_max")


def impossible(metric: str, value: float) -> str | None:
    """Why the metric cannot have that value, and what to write instead; None where it can."""
    known = declared(metric)
    unit = known.unit if known is not None else ""
    if unit in ("fraction", "0/1") or metric in _SHARES:
        if -_SLACK <= value <= 1 + _SLACK:
            return None
        hint = f": write {value:g}% or {value / 100:g}" if 1 < value <= 100 and unit != "0/1" else ""
        return f"a share is between 0 and 1{hint}"
    signless = unit in ("count", "tokens") or metric in _NOT_NEGATIVE or metric.endswith(_DEVIATIONS)
    return "it cannot be negative" if signless and value < 0 else None


def possible(rows: StepTable) -> tuple[StepTable, list[str]]:
    """The rows without values that their metric cannot have, and a note for each such metric; the same rows else."""
    columns: dict[str, list[float]] = {}
    for row in rows:
        for name, value in row.items():
            if value is not None:
                columns.setdefault(name, []).append(value)
    wrong = {name: why for name, values in columns.items() if (why := _of_either_end(name, values)) is not None}
    if not wrong:
        return rows, []
    kept = [
        {name: value for name, value in row.items() if not (name in wrong and _is_wrong(name, value))} for row in rows
    ]
    notes = []
    for name, why in wrong.items():
        count = sum(_is_wrong(name, value) for value in columns[name])
        notes.append(f"{name}: {count} of {len(columns[name])} values left out: {why}")
    return kept, notes


def _of_either_end(name: str, values: list[float]) -> str | None:
    return impossible(name, min(values)) or impossible(name, max(values))


def _is_wrong(name: str, value: float | None) -> bool:
    return value is not None and impossible(name, value) is not None
