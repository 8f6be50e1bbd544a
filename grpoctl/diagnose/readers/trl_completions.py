"""OUTPUT/completions/*.parquet, which TRL writes with log_completions=True -> samples.

pyarrow is imported where there are such files, and only there.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Any

from core.health.case import Sample

MOST = 100_000  # samples that are kept, the newest
_OWN = ("step", "prompt", "completion", "advantage")
_LONGEST = 80  # characters of a prompt that is its own name


def read_completions(output: Path, columns: Collection[str]) -> tuple[tuple[Sample, ...], list[str]]:
    """The samples in a trainer's folder, and notes; `columns` of its log tell which of their columns are rewards.

    With several reward functions the weights that made one reward of them are not written down: `reward` is None then.
    """
    files = _files(output)
    if not files:
        return (), []
    samples: list[Sample] = []
    bad = 0
    for file in reversed(files):
        rows = _rows(file)
        bad += rows is None
        samples[:0] = _samples(rows or [], columns)
        if len(samples) > MOST:
            break
    notes = [f"{bad} of {len(files)} files of completions could not be read"] if bad else []
    if len(samples) > MOST:
        notes.append(f"only the newest {MOST} completions were read")
    return tuple(samples[-MOST:]), notes


def inferred_group_size(samples: Sequence[Sample]) -> dict[str, Any]:
    """num_generations, where the completions say it: rows of one prompt stand together, in groups of one size."""
    runs = [len(list(rows)) for _, rows in groupby(samples, key=lambda one: (one.step, one.group))]
    size = math.gcd(*runs) if runs else 0
    return {"num_generations": size} if size > 1 else {}


def _files(output: Path) -> list[Path]:
    with suppress(OSError):
        return sorted((output / "completions").glob("completions_*.parquet"))
    return []


def _rows(file: Path) -> list[dict[str, Any]] | None:
    """The rows of one file; None where it is damaged."""
    import pyarrow
    import pyarrow.parquet

    try:
        rows: list[dict[str, Any]] = pyarrow.parquet.read_table(file, partitioning=None).to_pylist()
    except (OSError, ValueError, pyarrow.ArrowException):
        return None
    return rows


def _samples(rows: Sequence[Mapping[str, Any]], columns: Collection[str]) -> Iterator[Sample]:
    for index, row in enumerate(rows):
        rewards = [name for name in row if name not in _OWN and f"rewards/{name}/mean" in columns]
        step = row.get("step")
        if not isinstance(step, int):
            continue
        yield Sample(
            step=step,
            row=index,
            group=_name(_text(row.get("prompt"))),
            text=_text(row.get("completion")),
            reward=_number(row[rewards[0]]) if len(rewards) == 1 else None,
            advantage=_number(row.get("advantage")),
        )


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


def _text(value: object) -> str | None:
    """Text, or the last message of a conversation."""
    if isinstance(value, list) and value and isinstance(value[-1], dict):
        value = value[-1].get("content")
    return value if isinstance(value, str) else None


def _name(prompt: str | None) -> str | None:
    """What stands for a prompt: itself where it is short, else its beginning and a digest."""
    if prompt is None or len(prompt) <= _LONGEST:
        return prompt
    return f"{prompt[: _LONGEST - 10]}… {hashlib.sha256(prompt.encode(errors='replace')).hexdigest()[:8]}"
