"""What the rows of a GSM8K run's samples.jsonl show: accuracy over the steps, and how answers fail."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from core.tasks.base import Table

PARTS = ("exact", "lenient", "format")
_QUARTERS = 4
# A row is of the first kind whose part it has.
KINDS = {
    "exact": "right, in the asked form",
    "lenient": "right, not in the asked form",
    "format": "wrong, in the asked form",
    "": "wrong or none, not in the asked form",
}


def sample_tables(samples: Sequence[Mapping[str, object]]) -> list[Table]:
    """Two tables; rows without the task's scores are left out."""
    scored = [(int(str(row["step"])), _parts(row)) for row in samples]
    known = [(step, parts) for step, parts in scored if parts is not None]
    return [_over_steps(known), _kinds([parts for _, parts in known])]


def _parts(row: Mapping[str, object]) -> Mapping[str, float] | None:
    found = row.get("rewards")
    return found if isinstance(found, Mapping) and all(name in found for name in PARTS) else None


def _over_steps(rows: Sequence[tuple[int, Mapping[str, float]]]) -> Table:
    """A line for each quarter of the steps that were sampled on."""
    steps = sorted({step for step, _ in rows})
    lines = []
    for quarter in range(_QUARTERS):
        chosen = steps[quarter * len(steps) // _QUARTERS : (quarter + 1) * len(steps) // _QUARTERS]
        inside = [parts for step, parts in rows if chosen and chosen[0] <= step <= chosen[-1]]
        if inside:
            shares = (_share(parts[name] for parts in inside) for name in PARTS)
            lines.append((f"{chosen[0]} to {chosen[-1]}", str(len(inside)), *shares))
    return Table(title="Accuracy over the steps", columns=("steps", "samples", *PARTS), rows=tuple(lines))


def _kinds(rows: Sequence[Mapping[str, float]]) -> Table:
    counts = dict.fromkeys(KINDS, 0)
    for row in rows:
        counts[next(part for part in KINDS if row.get(part, 1.0) > 0)] += 1
    lines = tuple((KINDS[part], str(count), _share([count / max(1, len(rows))])) for part, count in counts.items())
    return Table(title="Answers", columns=("answer", "samples", "share"), rows=lines)


def _share(values: Iterable[float]) -> str:
    found = [*values]
    return f"{100 * sum(found) / len(found):.1f} %"
