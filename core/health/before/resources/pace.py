"""Seconds of a step from shapes: operations over an assumed speed, and weights read once for each sampled token.

An order of magnitude: what a device reaches depends on batch, kernels and what else it does. A probe measures instead
(grpoctl.resources). Not here: rewards' seconds, which no shape tells.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from core.config import GrpoStage, RunSpec
from core.health.before.budget import steps
from core.health.before.resources.memory import Device, Tokens, weights
from core.health.before.resources.shapes import Shape
from core.health.before.view import StageView, views


@dataclass(frozen=True, kw_only=True, slots=True)
class Speed:
    """Floating-point operations and bytes read, both in a second."""

    operations: float
    bytes: float


# Taken for granted, not measured here: a core reached 50 GFLOP/s in docs/benchmarks.md; of a GPU of 24 GB, half its
# bf16 peak of some 150 TFLOP/s and most of its 1 TB/s.
CPU_CORE = Speed(operations=5e10, bytes=5e9)
GPU = Speed(operations=7e13, bytes=7e11)
CALL, LAYER = 3e-4, 2e-4  # seconds of one forward whatever its size, and of each layer in it
BACKWARD = 3  # such forwards that a forward and backward pass takes


@dataclass(frozen=True, kw_only=True, slots=True)
class Pace:
    """Seconds of a stage's step by part, every completion at its full length; and its steps, fewest and most."""

    stage: str
    seconds: Mapping[str, float]
    least: int
    most: int

    @property
    def step(self) -> float:
        """Seconds of one step."""
        return sum(self.seconds.values())


def speed(device: Device, cores: int) -> Speed:
    """What is assumed of the machine."""
    return GPU if device == "cuda" else Speed(operations=cores * CPU_CORE.operations, bytes=2 * CPU_CORE.bytes)


def paces(spec: RunSpec, shape: Shape, tokens: Tokens, assumed: Speed) -> list[Pace]:
    """Each stage's."""
    return [_pace(view, shape, tokens, assumed) for view in views(spec)]


def evaluation_seconds(spec: RunSpec, shape: Shape, tokens: Tokens, assumed: Speed) -> float:
    """One evaluation's."""
    prompts, each = spec.task.eval_prompts, spec.evaluation.num_generations_eval
    drawn = _Rows(prompts=prompts, rows=prompts * each, prompt=tokens.prompt, completion=spec.max_completion_length)
    return _sampling(spec, shape, drawn, assumed)


def evaluations(spec: RunSpec) -> int:
    """How often a run evaluates at most: before its first step, every `eval_steps`, and after each stage."""
    ticks = sum(view.stage.max_steps for view in views(spec))
    every = spec.evaluation.eval_steps
    return 1 + ticks // every + sum((view.steps_before + view.stage.max_steps) % every > 0 for view in views(spec))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Rows:
    prompts: int
    rows: int
    prompt: int
    completion: int

    @property
    def tokens(self) -> int:
        return self.rows * (self.prompt + self.completion)


def _pace(view: StageView, shape: Shape, tokens: Tokens, assumed: Speed) -> Pace:
    stage, spec = view.stage, view.spec
    sampled, count = stage.rows_per_step > 0, stage.rows_per_step or stage.prompts_per_step
    completion = stage.max_completion_length if sampled else tokens.answer
    rows = _Rows(prompts=stage.prompts_per_step, rows=count, prompt=tokens.prompt, completion=completion)
    passes = 4 if spec.language_model.lora is not None else 6
    passes += 2 * spec.language_model.gradient_checkpointing
    iterations = stage.num_iterations if isinstance(stage, GrpoStage) else 1
    passed = _pass(shape, rows, passes) / assumed.operations
    seconds = {"learn": iterations * (passed + BACKWARD * stage.gradient_accumulation_steps * _call(shape))}
    if sampled:
        reference = isinstance(stage, GrpoStage) and stage.beta.ever
        one_group = 1 / stage.prompts_per_step
        scored = _pass(shape, rows, 2) * (one_group + reference)
        seconds = {
            "sample": _sampling(spec, shape, rows, assumed),
            "score": scored / assumed.operations + (1 + reference) * _call(shape),
            **seconds,
        }
    taken = steps(view)
    return Pace(stage=view.name, seconds=seconds, least=taken.least, most=taken.most)


def _pass(shape: Shape, rows: _Rows, each: int) -> float:
    """Operations of a pass that takes `each` of them for a token and a weight; the head sees completions only."""
    blocks = shape.layers * shape.block_linear * rows.tokens
    return float(each * (blocks + shape.vocabulary * shape.hidden * rows.rows * rows.completion))


def _sampling(spec: RunSpec, shape: Shape, rows: _Rows, assumed: Speed) -> float:
    prefill = shape.layers * shape.block_linear * rows.prompts * rows.prompt
    each = shape.layers * shape.block_linear + shape.vocabulary * shape.hidden
    operations = 2 * (prefill + each * rows.rows * rows.completion)
    held = weights(spec, shape, "cpu").held["weights"]
    return operations / assumed.operations + rows.completion * (held / assumed.bytes + _call(shape))


def _call(shape: Shape) -> float:
    return CALL + LAYER * shape.layers
