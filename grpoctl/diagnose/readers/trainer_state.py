"""trainer_state.json of Hugging Face's Trainer, TRL's GRPOTrainer among them, and the folder a trainer wrote.

What is here: that file, and what stands beside it. What is not: rows (trainer_log), completions (trl_completions).
training_args.bin is a pickle, which runs code when it is read: it is never opened.
"""

from __future__ import annotations

import json
import math
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from core.errors import SpecError
from grpoctl.diagnose.readers.base import Asked, Read
from grpoctl.diagnose.readers.text import head, unpacked
from grpoctl.diagnose.readers.trainer_log import Entry, Known, case_of_entries, has_rewards, is_entry, number
from grpoctl.diagnose.readers.trl_completions import inferred_group_size, read_completions

FILE = "trainer_state.json"
_PICKLE = "training_args.bin"
_LARGEST = 1 << 30
_STEPS = 1e15


class _TrainerState:
    """A trainer_state.json, or a folder that has one, itself or in its last checkpoint-N."""

    name = "trainer-state"
    looks_for = f"{FILE} of Hugging Face or TRL (log_history), or a folder with one in it or in its last checkpoint-N"

    def knows(self, asked: Asked) -> bool:
        """By the file's beginning: its keys are sorted, and nothing long comes before log_history."""
        file = _file(asked.path)
        return file is not None and b'"log_history"' in head(file)

    def read(self, asked: Asked) -> Read:
        """Rows from log_history, settings from what stands beside it."""
        file = _file(asked.path)
        assert file is not None  # knows() was asked
        document = _document(file)
        entries = _entries(document, file)
        folder = file.parent
        completions, notes = read_completions(_output(folder), {name for entry in entries for name in entry.cells})
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
        return Read(case=case, kind=self.name, source=str(file), notes=(*more, *notes), extra=extra)


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
        steps = [(int(found[1]), entry) for entry in path.iterdir() if (found := _checkpoint(entry))]
        return next((entry / FILE for _, entry in sorted(steps, reverse=True) if (entry / FILE).is_file()), None)
    return None


def _checkpoint(folder: Path) -> re.Match[str] | None:
    return re.fullmatch(r"checkpoint-(\d+)", folder.name)


def _output(folder: Path) -> Path:
    """The folder the trainer wrote into: the one around its checkpoints."""
    return folder.parent if _checkpoint(folder) else folder


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
    found, stepless = [], 0
    for logged in document["log_history"]:
        if not isinstance(logged, dict) or not is_entry(logged):
            continue
        step = number(logged.get("step"))
        if step is None or not 0 <= step < _STEPS:
            stepless += 1
            continue
        cells = {str(name): number(value) for name, value in logged.items() if _is_cell(value)}
        found.append(Entry(step=int(step), cells=cells))
    if not found and stepless:
        raise SpecError(f"log_history: {stepless} entries have metrics, and none a step that is a number", file=file)
    if not found:
        raise SpecError("log_history has no metric of training: nothing was logged (logging_steps?)", file=file)
    return found


def _is_cell(value: object) -> bool:
    """Whether it is a number, or one that was measured and is none (NaN): `null` says that nothing was measured."""
    return number(value) is not None


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
