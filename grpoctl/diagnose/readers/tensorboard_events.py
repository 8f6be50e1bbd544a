"""TensorBoard's event files -> a case, through TensorBoard's own reader (the extra `tensorboard`).

What is here: scalars, and the trainer's arguments that Hugging Face writes as text beside them. What is not: what the
names mean (metric_names), rows (trainer_log).
"""

from __future__ import annotations

import json
import math
from contextlib import suppress
from pathlib import Path
from typing import Any

from core.errors import SpecError
from grpoctl.diagnose.readers.base import Reading, Source
from grpoctl.diagnose.readers.trainer_log import Entry, Known, case_of_entries, is_entry

_MARK = "tfevents"
_ARGUMENTS = "args/text_summary"  # Hugging Face's callback


class _TensorBoard:
    """A file of events, or a folder with some."""

    name = "tensorboard"
    looks_for = "event files"

    def knows(self, source: Source) -> bool:
        """By the files' names: TensorBoard goes by them, too."""
        return _folder_or_file(source.path) is not None

    def read(self, source: Source) -> Reading:
        """One row a step. Raises SpecError without TensorBoard, and where no scalar is a metric."""
        path = _folder_or_file(source.path)
        assert path is not None  # knows() came first
        try:
            from tensorboard.backend.event_processing.event_accumulator import SCALARS, EventAccumulator
        except ImportError:
            raise SpecError(
                "TensorBoard's reader is not installed: pip install 'grpoctl[tensorboard]'", file=path
            ) from None
        events = EventAccumulator(str(path), size_guidance={SCALARS: 0})
        try:
            events.Reload()
        except Exception as error:  # noqa: BLE001 - protobuf's, TensorFlow's stub's and the file system's own
            raise SpecError(f"TensorBoard cannot read it: {type(error).__name__}: {error}", file=path) from None
        by_step: dict[int, dict[str, float | None]] = {}
        for tag in events.Tags()["scalars"]:
            for event in events.Scalars(tag):
                by_step.setdefault(event.step, {})[tag] = event.value
        entries = [Entry(step=step, cells=by_step[step]) for step in sorted(by_step)]
        if not any(is_entry(entry.cells) for entry in entries):
            tags = ", ".join(events.Tags()["scalars"][:10]) or "none"
            raise SpecError(f"has no scalar that is a metric of training; scalars: {tags}", file=path)
        case, notes = case_of_entries(entries, Known(arguments=_arguments(events)))
        return Reading(case=case, kind=self.name, source=str(path), notes=tuple(notes))


READER = _TensorBoard()


def _folder_or_file(path: Path | None) -> Path | None:
    """The file of events, or the folder that has some in itself; None for anything else."""
    if path is None:
        return None
    with suppress(OSError):
        if path.is_file():
            return path if _MARK in path.name else None
        if path.is_dir() and any(_MARK in entry.name for entry in path.iterdir() if entry.is_file()):
            return path
    return None


def _arguments(events: Any) -> dict[str, Any] | None:
    """The trainer's arguments; None where they are not among the texts, or are no JSON."""
    with suppress(KeyError, ValueError, IndexError, AttributeError):
        text = events.Tensors(_ARGUMENTS)[0].tensor_proto.string_val[0]
        document = json.loads(text)
        return {name: value for name, value in document.items() if not isinstance(value, float) or math.isfinite(value)}
    return None
