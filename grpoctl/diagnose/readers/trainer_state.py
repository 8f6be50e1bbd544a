"""trainer_state.json of Hugging Face's Trainer, TRL's GRPOTrainer among them, and the folder a trainer wrote.

What is here: that file, and what stands beside it: settings, and the completions that TRL writes with
log_completions=True. What is not: rows (trainer_log). training_args.bin is a pickle, which runs code when it is read:
it is never opened. pyarrow is imported where there are completions, and only there.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Any

from core.errors import SpecError
from core.health.case import Sample
from grpoctl.diagnose.readers.base import Reading, Source
from grpoctl.diagnose.readers.text import head, unpacked
from grpoctl.diagnose.readers.trainer_log import Entry, Known, case_of_entries, has_rewards, is_entry, number

FILE = "trainer_state.json"
_PICKLE = "training_args.bin"
_BEGINS = re.compile(rb"(?:\xef\xbb\xbf)?\s*\{.*\"log_history\"\s*:", re.DOTALL)  # and is no text that speaks of it
_LARGEST = 1 << 30
_STEPS = 1e15
_MOST = 100_000  # completions that are kept, the newest
_OWN_COLUMNS = ("step", "prompt", "completion", "advantage")  # of a file of completions; the others are rewards
_LONGEST_NAME = 80  # characters of a prompt that is its own name


class _TrainerState:
    """A trainer_state.json, or a folder that has one, itself or in its last checkpoint-N."""

    name = "trainer-state"
    looks_for = FILE

    def knows(self, source: Source) -> bool:
        """By the file's beginning: its keys are sorted, and nothing long comes before log_history."""
        file = _file(source.path)
        return file is not None and _BEGINS.match(head(file)) is not None

    def read(self, source: Source) -> Reading:
        """Rows from log_history, settings from what stands beside it."""
        file = _file(source.path)
        assert file is not None  # knows() came first
        document = _document(file)
        entries = _entries(document, file)
        folder = file.parent
        output = folder.parent if _checkpoint(folder) else folder  # what the trainer wrote into
        completions, notes = read_completions(output, {name for entry in entries for name in entry.cells})
        arguments = _json(folder / "training_args.json")
        known = Known(
            arguments=arguments,
            settings=_settings(document, folder) | inferred_group_size(completions),
            samples=completions,
        )
        case, more = case_of_entries(entries, known)
        if arguments is None and has_rewards(case.rows):
            notes.append(_unknown_settings(folder))
        places = {name: number(document.get(name)) for name in ("global_step", "epoch")}
        extra = {name: value for name, value in places.items() if value is not None and math.isfinite(value)}
        return Reading(case=case, kind=self.name, source=str(file), notes=(*more, *notes), extra=extra)


READER = _TrainerState()


def _file(path: Path | None) -> Path | None:
    """The state that a path means; None where there is none."""
    if path is None:
        return None
    with suppress(OSError):
        if path.is_file():
            return path
        if (path / FILE).is_file():
            return path / FILE
        steps = [(int(match[1]), entry) for entry in path.iterdir() if (match := _checkpoint(entry))]
        return next((entry / FILE for _, entry in sorted(steps, reverse=True) if (entry / FILE).is_file()), None)
    return None


def _checkpoint(folder: Path) -> re.Match[str] | None:
    return re.fullmatch(r"checkpoint-(\d+)", folder.name)


def _document(file: Path) -> dict[str, Any]:
    data = unpacked(file, _LARGEST)
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        why = "nested too deep" if isinstance(error, RecursionError) else str(error)
        raise SpecError(f"damaged: {why}", file=file) from None
    if not isinstance(document, dict) or not isinstance(document.get("log_history"), list):
        raise SpecError("has no list log_history, so it is no trainer's state", file=file)
    return document


def _entries(document: dict[str, Any], file: Path) -> list[Entry]:
    """What was logged, in its order; text and lists are no metrics."""
    entries, stepless = [], 0
    for logged in document["log_history"]:
        if not isinstance(logged, dict) or not is_entry(logged):
            continue
        step = number(logged.get("step"))
        if step is None or not 0 <= step < _STEPS:
            stepless += 1
            continue
        # `null` says that nothing was measured; NaN was measured, and is a number here
        cells = {str(name): number(value) for name, value in logged.items() if number(value) is not None}
        entries.append(Entry(step=int(step), cells=cells))
    if not entries and stepless:
        raise SpecError(f"log_history: {stepless} entries have metrics, and none a step that is a number", file=file)
    if not entries:
        raise SpecError("log_history has no metric of training: nothing was logged (logging_steps?)", file=file)
    return entries


def _settings(document: dict[str, Any], folder: Path) -> dict[str, Any]:
    steps = document.get("max_steps")
    known: dict[str, Any] = {"max_steps": steps} if isinstance(steps, int) and steps > 0 else {}
    adapter = _json(folder / "adapter_config.json") or {}
    dropout = number(adapter.get("lora_dropout"))
    return known | ({"lora_dropout": dropout} if dropout is not None else {})


def _json(file: Path) -> dict[str, Any] | None:
    """The object in a small file beside the state; None where there is none or it is damaged."""
    try:
        document = json.loads(file.read_bytes()) if file.is_file() and file.stat().st_size < 1 << 24 else None
    except (OSError, ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _unknown_settings(folder: Path) -> str:
    why = "the file has no settings of the trainer"
    with suppress(OSError):
        if (folder / _PICKLE).exists():
            why = f"{_PICKLE} is a pickle, which could run code, and is not opened"
    return f"{why}: say what you know, e.g. --set num_generations=8 --set learning_rate=1e-6 --set scale_rewards=group"


def read_completions(output: Path, columns: Collection[str]) -> tuple[tuple[Sample, ...], list[str]]:
    """The samples in a trainer's folder, and notes; `columns` of its log tell which of their columns are rewards.

    With several reward functions the weights that made one reward of them are not written down: `reward` is None then.
    """
    files: list[Path] = []
    with suppress(OSError):
        files = sorted((output / "completions").glob("completions_*.parquet"))
    if not files:
        return (), []
    samples: list[Sample] = []
    bad = 0
    for file in reversed(files):
        rows = _parquet_rows(file)
        bad += rows is None
        samples[:0] = _samples(rows or [], columns)
        if len(samples) > _MOST:
            break
    notes = [f"{bad} of {len(files)} files of completions could not be read"] if bad else []
    if len(samples) > _MOST:
        notes.append(f"only the newest {_MOST} completions were read")
    return tuple(samples[-_MOST:]), notes


def inferred_group_size(samples: Sequence[Sample]) -> dict[str, Any]:
    """num_generations, where the completions say it: rows of one prompt stand together, in groups of one size."""
    runs = [len(list(rows)) for _, rows in groupby(samples, key=lambda sample: (sample.step, sample.group))]
    size = math.gcd(*runs) if runs else 0
    return {"num_generations": size} if size > 1 else {}


def _parquet_rows(file: Path) -> list[dict[str, Any]] | None:
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
        rewards = [name for name in row if name not in _OWN_COLUMNS and f"rewards/{name}/mean" in columns]
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
    if prompt is None or len(prompt) <= _LONGEST_NAME:
        return prompt
    return f"{prompt[: _LONGEST_NAME - 10]}… {hashlib.sha256(prompt.encode(errors='replace')).hexdigest()[:8]}"
