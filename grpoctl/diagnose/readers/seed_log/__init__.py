"""The text log of the seed project's GRPO trainer (documents/000: P30): Chinese, forty thousand lines for 96 steps.

What is here: how the format is known, the case made of what was parsed, and what is known of the configuration: what
the log's head prints, and what follows from the public trainer's code (github.com/beita6969/colab-grpo,
src/grpo_trainer.py). Each setting taken from the code is named in a note, so that a reader of the report can see what
it rests on. What is not here: the log's lines (parser).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from core.errors import NotFoundError, StorageError
from core.health.case import Case, Settings
from grpoctl.diagnose.readers.base import Reading, Source
from grpoctl.diagnose.readers.seed_log.parser import Log, parse
from grpoctl.diagnose.readers.text import CUT_OFF, Line, is_text, text_lines

_SIGNS = ("📍 Step ", "[QWEN] Workflow 代码 S", "DSL质量: fallback=", "初始化GRPO训练器")
_CHARACTERS = 1 << 22  # the same, where lines are long
_LOOKED_AT = 200_000  # lines in which one of them is looked for: other output may come first
_ACCUMULATED = 8  # completions the trainer puts into one optimiser step: a step of no more makes one


class _SeedLog:
    """The reader."""

    name = "seed-log"
    looks_for = "the console of the project that p30 is of"

    def knows(self, source: Source) -> bool:
        """Whether one of the trainer's own lines stands in the file's beginning."""
        path = source.path
        if path is None or not path.is_file() or not is_text(path):
            return False
        with suppress(StorageError):
            size = 0
            for line in islice(text_lines(path), _LOOKED_AT):
                if not line.text.isascii() and any(sign in line.text for sign in _SIGNS):
                    return True
                size += len(line.text)
                if size > _CHARACTERS:
                    break
        return False

    def read(self, source: Source) -> Reading:
        """The log as a case. Raises NotFoundError where it ends before its first step, StorageError where it cannot be
        read.
        """
        assert source.path is not None
        notes: list[str] = []
        log = parse(_whole_lines(source.path, notes))
        if not log.steps:
            raise NotFoundError(f"{source.name}: the log of a training run, and it ends before its first step")
        rates = _derived_rates(log)
        best = max(log.head.levels, default=None)
        rows = [step.row(best) | rates.get(step.number, {}) for step in log.steps.values()]
        samples = tuple(sample for step in log.steps.values() for sample in step.samples())
        settings, assumptions = _settings(log)
        case = Case(rows=rows, samples=samples, notices=log.all_notices(), settings=settings)
        return Reading(
            case=case,
            kind=self.name,
            source=source.name,
            notes=(*notes, *_gaps(log), *assumptions),
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


def _settings(log: Log) -> tuple[Settings, list[str]]:
    """The settings, and a sentence on each thing that is not printed."""
    head = log.head
    sized = next((step for step in reversed(log.steps.values()) if step.k is not None), None)
    known: dict[str, Any] = {
        "num_generations": sized.k if sized else None,
        "prompts_per_step": sized.groups if sized else None,
        "max_steps": head.total_steps,
        "temperature": head.temperature,
        "learning_rate": head.learning_rate,
        "warmup_steps": head.warmup_steps,
        "lr_scheduler_type": "cosine" if head.warmup_steps is not None else None,
        "gradient_checkpointing": head.checkpointing,
        "skip_without_signal": True if log.skips else None,
        "offline": False,
    }
    notes = []
    if head.warmup_steps:
        known["first_update_lr"] = 0.0
        notes.append(
            f"learning rates are not printed: they follow from the head ({head.learning_rate:g}, {head.warmup_steps} "
            "warm-up steps) and the public trainer, whose scheduler starts at 0 and moves with the optimiser only"
            if head.learning_rate is not None
            else "the first update's learning rate, 0, follows from the warm-up and the public trainer's scheduler"
        )
    elif head.warmup_steps is None and _has_first_update(log):
        known["first_update_lr"] = 0.0
        notes.append(
            "the log's head is cut off: the first update's learning rate is taken to be 0, by the public trainer's "
            "scheduler, which starts at 0 unless its warm-up (50 steps where none is set) is turned off"
        )
    settings = Settings(**known)
    if log.simple:
        settings = replace(
            settings, transform="none", baseline="group", scale_rewards="group", ddof=0, eps=0.0, std_floor=0.0
        )
        notes.append("advantages are the group's z-score with the population standard deviation: the public trainer")
    if any(step.printed.kl_loss == 0.0 and step.update == 1 for step in log.steps.values()):
        notes.append(
            "loss and KL term are printed every fifth step to four decimals: where they read 0.0000 they are left out "
            "(the trainer's KL is against the policy that sampled)"
        )
    return settings, notes


def _has_first_update(log: Log) -> bool:
    """Whether the log's first update is its process's: a line that is printed once, when it first trains, is there."""
    first = next((step.number for step in log.steps.values() if step.update == 1), None)
    once = {notice.step for notice in log.all_notices() if notice.kind == "cache-disabled-by-checkpointing"}
    return first in once


def _derived_rates(log: Log) -> dict[int, dict[str, float | None]]:
    """Step -> the learning rate of its update; {} where the log does not say how many updates were before."""
    head, steps = log.head, list(log.steps.values())
    whole = steps[0].number == 1 and not log.restarts
    small = all((step.groups or 0) * (step.k or 0) <= _ACCUMULATED for step in steps)
    if not (whole and small) or head.learning_rate is None or head.warmup_steps is None or head.total_steps is None:
        return {}
    updates = [step.number for step in steps if step.update == 1]
    peak, warmup, total = head.learning_rate, head.warmup_steps, head.total_steps
    return {number: {"learning_rate": peak * _cosine(index, warmup, total)} for index, number in enumerate(updates)}


def _cosine(index: int, warmup: int, total: int) -> float:
    """The share of the peak at an optimiser step, from 0: transformers' get_cosine_schedule_with_warmup."""
    if index < warmup:
        return index / warmup
    return max(0.0, 0.5 * (1.0 + math.cos(math.pi * (index - warmup) / max(1, total - warmup))))


READER = _SeedLog()
