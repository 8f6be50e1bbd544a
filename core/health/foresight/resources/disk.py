"""What a run leaves on the disk, in bytes: checkpoints, what it exports, its records; and the model's own files."""

from __future__ import annotations

from dataclasses import dataclass

from core.config import RunSpec
from core.health.foresight.budget import budget
from core.health.foresight.resources.memory import weights
from core.health.foresight.resources.passes import Device
from core.health.foresight.resources.shapes import Shape
from core.health.foresight.view import views

STEP = 2_500  # bytes of a step in metrics.jsonl, timings.jsonl and the MLflow store
SAMPLE, TOKEN = 300, 5  # bytes of a completion in samples.jsonl: around its text, and of each token
TOKENIZER = 4 * 2**20
STORE = 2**20  # an empty MLflow store


@dataclass(frozen=True, kw_only=True, slots=True)
class Disk:
    """At most, while the run goes on: one checkpoint more than is kept is there for a moment."""

    checkpoint: int  # one of them: weights that move, and their two moments
    checkpoints: int
    export: int
    merged: int
    records: int

    @property
    def total(self) -> int:
        """The run's own; the model's files are not the run's."""
        return self.checkpoints + self.export + self.merged + self.records


def disk(spec: RunSpec, shape: Shape, device: Device) -> Disk:
    """Of the whole run."""
    found = weights(spec.language_model, shape, device)
    one = 3 * found.trainable * found.each
    size = spec.language_model.itemsize
    model = shape.total * size + TOKENIZER
    budgets = [(view, budget(view)) for view in views(spec)]
    records = STORE + sum(
        each.max_steps * STEP + each.max_completions_with_refills * (SAMPLE + TOKEN * view.stage.max_completion_length)
        for view, each in budgets
    )
    return Disk(
        checkpoint=one,
        checkpoints=one * (spec.checkpoints.save_total_limit + 2),  # the best one, and the one being written
        export=found.trainable * found.each + TOKENIZER if spec.language_model.lora is not None else model,
        merged=model if spec.export.merged and spec.language_model.lora is not None else 0,
        records=records,
    )
