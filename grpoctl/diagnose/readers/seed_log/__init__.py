"""The text log of the seed project's GRPO trainer (documents/000: P30): Chinese, forty thousand lines for 96 steps.

What is here: how the format is known, and the case made of what was parsed. What is not: its lines (parser) and what
its head and the public trainer's code say of the configuration (settings).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from core.errors import NotFoundError, StorageError
from core.health.case import Case
from grpoctl.diagnose.readers.base import Asked, Read
from grpoctl.diagnose.readers.seed_log.parser import Log, parse
from grpoctl.diagnose.readers.seed_log.settings import derived_rates, settings_of
from grpoctl.diagnose.readers.text import CUT_OFF, Line, is_text, text_lines

_SIGNS = ("📍 Step ", "[QWEN] Workflow 代码 S", "DSL质量: fallback=", "初始化GRPO训练器")
_LOOKED_AT = 200_000  # lines in which one of them is looked for: other output may come first


class SeedLog:
    """The reader."""

    name = "seed-log"
    looks_for = "a log with lines such as '📍 Step 4/500' and 'DSL质量: fallback=True', plain or gzipped"

    def knows(self, asked: Asked) -> bool:
        """Whether one of the trainer's own lines stands in the file's beginning."""
        path = asked.path
        if path is None or not path.is_file() or not is_text(path):
            return False
        with suppress(StorageError):
            lines = (line.text for line in islice(text_lines(path), _LOOKED_AT))
            return any(sign in text for text in lines if not text.isascii() for sign in _SIGNS)
        return False

    def read(self, asked: Asked) -> Read:
        """The log as a case. Raises NotFoundError where it ends before its first step, StorageError where it cannot be
        read.
        """
        assert asked.path is not None
        notes: list[str] = []
        log = parse(_whole_lines(asked.path, notes))
        if not log.steps:
            raise NotFoundError(f"{asked.name}: the log of a training run, and it ends before its first step")
        rates = derived_rates(log)
        best = max(log.head.levels, default=None)
        rows = [step.row(best) | rates.get(step.number, {}) for step in log.steps.values()]
        samples = tuple(sample for step in log.steps.values() for sample in step.samples())
        settings, why = settings_of(log)
        case = Case(rows=rows, samples=samples, notices=log.all_notices(), settings=settings)
        return Read(
            case=case,
            kind=self.name,
            source=asked.name,
            notes=(*notes, *_gaps(log), *why),
            extra=_extra(log),
        )


def _whole_lines(path: Path, notes: list[str]) -> Iterator[Line]:
    """The lines, without a last one that was cut off: half a line would be half a text."""
    held: Line | None = None
    for line in text_lines(path, notes):
        if held is not None:
            yield held
        held = line
    if held is not None and CUT_OFF not in notes and _ends_a_line(path):
        yield held


def _ends_a_line(path: Path) -> bool:
    """Whether the file's last line is ended; a gzip's is taken to be."""
    with suppress(OSError), path.open("rb") as file:
        if file.read(2) == b"\x1f\x8b":
            return True
        file.seek(-2, 2)
        return file.read().rstrip(b"\0")[-1:] in (b"\n", b"\r")  # zeros are UTF-16's
    return False


def _gaps(log: Log) -> list[str]:
    """What of the run the log does not have, a sentence each."""
    steps = list(log.steps.values())
    notes = [
        f"line {line}: the log goes back to step {number}; what stood there before is left out"
        for line, number in log.restarts
    ]
    if (first := steps[0].number) > 1:
        notes.append(f"the log begins at step {first}")
    if not steps[-1].complete:
        notes.append(f"the log ends inside step {steps[-1].number}, before its completions: the step is counted")
    elif steps[-1].update is None:
        notes.append(f"the log ends inside step {steps[-1].number}, before it says whether an update was made")
    nameless = sum(output.key is None for step in steps for output in step.outputs)
    if nameless or log.shuffled:
        notes.append(
            f"lines of parallel workers are mixed: {nameless} completions have no name, {log.shuffled} were "
            "matched to theirs by their order"
        )
    return notes


def _extra(log: Log) -> dict[str, float]:
    """Numbers of this format alone."""
    steps = log.steps.values()
    outputs = [output for step in steps for output in step.outputs]
    updates = [step.number for step in steps if step.update == 1]
    extra: dict[str, float] = {
        "not_executed": sum(len(step.failed) for step in steps),
        "workflow_kinds": len({output.text for output in outputs if not output.fallback}),
    }
    return extra | ({"first_update_step": updates[0]} if updates else {})


READER = SeedLog()
