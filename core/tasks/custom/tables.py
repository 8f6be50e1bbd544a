"""Samples of a run -> the tables of `grpoctl show RUN --samples`: each reward, and the words that are said most."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean

from core.tasks.base import Table

MOST = 10  # completions that are shown
LONGEST = 60  # characters of one of them


def sample_tables(samples: Sequence[Mapping[str, object]]) -> list[Table]:
    """One row for each reward over the first, the middle and the last third of the steps; the commonest completions."""
    return [_rewards(samples), _commonest(samples)]


def _rewards(samples: Sequence[Mapping[str, object]]) -> Table:
    thirds = _thirds(samples)
    names = dict.fromkeys(name for sample in samples for name in _parts(sample))
    rows = [("reward", *(_mean([_number(sample.get("reward")) for sample in third]) for third in thirds))]
    rows += [(name, *(_mean([_parts(sample).get(name) for sample in third]) for third in thirds)) for name in names]
    rows.append(("valid", *(_mean([float(bool(sample.get("valid"))) for sample in third]) for third in thirds)))
    missing = [sum(_number(sample.get("reward")) is None for sample in third) for third in thirds]
    rows.append(("rewards missing", *(str(count) for count in missing)))
    return Table(title="Mean rewards", columns=("", "first third", "second", "last"), rows=tuple(rows))


def _commonest(samples: Sequence[Mapping[str, object]]) -> Table:
    texts = Counter(str(sample["text"]) for sample in samples)
    rows = []
    for text, count in texts.most_common(MOST):
        found = [_number(sample.get("reward")) for sample in samples if sample["text"] == text]
        shown = " ".join(text.split())
        rows.append((shown if len(shown) <= LONGEST else f"{shown[: LONGEST - 3]}...", str(count), _mean(found)))
    title = f"Commonest of {len(texts)} different completions"
    return Table(title=title, columns=("completion", "samples", "mean reward"), rows=tuple(rows))


def _thirds(samples: Sequence[Mapping[str, object]]) -> list[list[Mapping[str, object]]]:
    """The samples of the steps' first, second and last third."""
    steps = sorted({int(str(sample["step"])) for sample in samples})
    third = {step: min(2, 3 * index // max(1, len(steps))) for index, step in enumerate(steps)}
    return [[sample for sample in samples if third[int(str(sample["step"]))] == number] for number in range(3)]


def _parts(sample: Mapping[str, object]) -> Mapping[str, float | None]:
    parts = sample.get("rewards")
    return {str(k): _number(v) for k, v in parts.items()} if isinstance(parts, Mapping) else {}


def _number(value: object) -> float | None:
    """A finite number; None for what is missing, which the file writes as null."""
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


def _mean(values: Sequence[float | None]) -> str:
    present = [value for value in values if value is not None]
    return f"{fmean(present):.4g}" if present else "-"
