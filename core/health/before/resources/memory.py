"""Peak memory of a run by part and by phase, from shapes; and what a run leaves on the disk.

    held       process, weights, adapter, reference, and once there was an update the optimiser's moments
    sample     + weights with the adapter added in or side by side, KV cache, the logits of one token
    score      + one forward without gradients, logits
    learn      + gradients, activations kept for backward, logits
    evaluate   as sample and score, for the held-out prompts

Bytes. Worst case: longest prompts, every completion at its full length; docs/benchmarks.md has measurements beside it.
On the disk: checkpoints, what a run exports, its records; and the model's own files. Not here: what a pass keeps of its
rows (passes), the shapes, seconds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from core.config import GrpoStage, ModelSpec, RunSpec, StageBase
from core.health.before.budget import budget
from core.health.before.resources.passes import (
    QUICK,
    Device,
    Rows,
    block,
    head,
    moves,
    shares,
    size_of,
    targets,
    tokens_at_once,
)
from core.health.before.resources.shapes import Shape
from core.health.before.view import views

PROCESS: Mapping[Device, int] = {"cpu": 425 * 2**20, "cuda": 600 * 2**20}  # the libraries; CUDA's context and workspace
FOUR_BIT = 0.5 + 4 / 64  # bytes of a weight: nf4, and a scale in fp32 for each 64
SAMPLED_WORD = 24  # bytes of a row's vocabulary entry, as core.policies.lm.batches bounds them
HEAP = 0.7  # of all blocks' activations: what the C library does not give back on the CPU, checkpointing or not
SAMPLING_LOGITS = 20  # of a row's: logits, log-probs, probabilities in fp32, their sum in fp64
SCORED_EVALUATION = 8  # rows of an evaluation that are scored
# Bytes of weights that sampling on the CPU copies to have them side by side (core.policies.lm.fast.decoder_step).
JOINED = 2**30
ROOM: Mapping[Device, int] = {"cpu": 64, "cuda": 256}  # lm.fast.shared_cache: drawn tokens there is room for at first
SAMPLING_ROOM: Mapping[Device, float] = {"cpu": 2**30, "cuda": 0.25}  # bytes, or a share: the bound of lm.batches
Parts = Mapping[str, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Tokens:
    """The longest that rows get: a prompt's tokens, and those of an answer that a supervised stage imitates."""

    prompt: int
    answer: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where a run is to fit: the kind of device, and the bytes of its memory that are there for the run.

    `quantises`: weights could be held in 4 bits there, as far as is known.
    """

    device: Device
    memory: int
    quantises: bool = False

    @property
    def sampling_room(self) -> float:
        """Bytes that one batch of samples may take beside the weights."""
        return SAMPLING_ROOM["cpu"] if self.device == "cpu" else SAMPLING_ROOM["cuda"] * self.memory


@dataclass(frozen=True, kw_only=True, slots=True)
class Phase:
    """The worst moment of one phase of a stage: what is in memory then, by part."""

    stage: str
    name: str
    parts: Parts

    @property
    def bytes(self) -> int:
        """All of it."""
        return sum(self.parts.values())


@dataclass(frozen=True, kw_only=True, slots=True)
class Weights:
    """Elements and bytes that do not depend on a stage."""

    total: int  # parameters, the adapter left out
    trainable: int  # elements that an optimiser moves
    each: int  # bytes of one of them
    held: Parts


def weights(spec: ModelSpec, shape: Shape, device: Device) -> Weights:
    """What a loaded model holds before its first step: process, weights, adapter, reference."""
    size = spec.itemsize
    held = {"process": PROCESS[device], "weights": shape.total * size}
    if spec.load_in_4bit == "always":
        linear = shape.layers * shape.block_linear
        held["weights"] = (shape.total - linear) * size + int(linear * FOUR_BIT)
    if spec.lora is not None:
        adapter = sum(spec.lora.r * sum(shape.linears[name]) for name in targets(spec, shape)) * shape.layers
        each = 4  # peft keeps adapters in fp32, whatever the weights are
        return Weights(total=shape.total, trainable=adapter, each=each, held={**held, "adapter": adapter * each})
    moved = sum(elements for name, elements in shape.parameters().items() if moves(spec, name))
    held["reference"] = moved * size
    return Weights(total=shape.total, trainable=moved, each=size, held=held)


def phases(spec: RunSpec, shape: Shape, tokens: Tokens, place: Place) -> list[Phase]:
    """Every phase of every stage, the evaluation last."""
    stages = (_Stage(spec, name, shape, tokens, place) for name in spec.stages)
    return [*(one for stage in stages for one in stage.phases()), _evaluation(spec, shape, tokens, place)]


def peak(found: Sequence[Phase]) -> Phase:
    """The phase that needs most."""
    return max(found, key=lambda phase: phase.bytes)


class _Stage:
    """The phases of one stage."""

    def __init__(self, spec: RunSpec, name: str, shape: Shape, tokens: Tokens, place: Place) -> None:
        self.spec, self.name, self.shape, self.place = spec, name, shape, place
        self.stage: StageBase = spec.stages[name]
        self.weights = weights(spec.language_model, shape, place.device)
        self.prompt = tokens.prompt
        self.sampled = self.stage.rows_per_step > 0
        self.completion = self.stage.max_completion_length if self.sampled else tokens.answer
        moments = 2 * self.weights.trainable * self.weights.each
        self.held: Parts = {**self.weights.held, "moments": moments}

    def phases(self) -> list[Phase]:
        """What the stage does on a step."""
        if not self.sampled:
            return [self._learn()]
        model, shape, device = self.spec.language_model, self.shape, self.place.device
        rows = at_once(model, shape, group=self._group(), width=self.prompt + self.completion, place=self.place)
        sampled = sampling(model, shape, self._rows(min(rows, self.stage.rows_per_step)), device)
        scored = scoring(model, shape, self._rows(self._scored_rows()), device)
        return [
            Phase(stage=self.name, name="sample", parts={**self.held, **sampled}),
            Phase(stage=self.name, name="score", parts={**self.held, **scored}),
            self._learn(),
        ]

    def _rows(self, count: int) -> Rows:
        return Rows(count=count, group=self._group(), prompt=self.prompt, completion=self.completion)

    def _group(self) -> int:
        return int(getattr(self.stage, "num_generations", 1))

    def _scored_rows(self) -> int:
        """The group whose rollout is checked is scored at once; a reference in micro-batches of the whole rollout."""
        stage = self.stage
        whole = isinstance(stage, GrpoStage) and (
            stage.beta.ever or stage.entropy_weighting != "none" or stage.importance_sampling_cap is not None
        )
        return max(self._group(), math.ceil(stage.rows_per_step / stage.gradient_accumulation_steps) if whole else 0)

    def _learn(self) -> Phase:
        model, shape, device = self.spec.language_model, self.shape, self.place.device
        rows = self._rows(micro_rows(self.stage)).within(tokens_at_once(model, shape, self.place.sampling_room))
        layers, one = _layers_with_gradients(model, shape), block(model, shape, rows, device)
        if model.gradient_checkpointing:
            inputs = layers * rows.tokens(shared=shares(shape)) * shape.hidden * size_of(model)
            activations, backward = inputs, one  # one layer's are made again after the logits are gone
        else:
            activations, backward = layers * one, 0
        autocast = 2 * shape.layers * shape.block_linear if model.mixed_precision == "bf16" else 0
        logits = head(model, shape, rows, device, entropy=self._entropy(), learns=True)
        gradients = self.weights.trainable * self.weights.each
        activations += max(0, backward - logits) + autocast
        parts = {
            **self.held,
            "gradients": gradients * 2,  # one term's beside the sum, on a step that an evaluation follows
            "activations": activations,
            "logits": logits,
            "heap": int(HEAP * layers * one) if device == "cpu" else 0,
        }
        return Phase(stage=self.name, name="learn", parts=parts)

    def _entropy(self) -> bool:
        stage = self.stage
        return isinstance(stage, GrpoStage) and (stage.entropy_coef.ever or stage.adaptive_entropy is not None)


def micro_rows(stage: StageBase) -> int:
    """Rows of one forward and backward pass."""
    rows = math.ceil((stage.rows_per_step or stage.prompts_per_step) / getattr(stage, "minibatches", 1))
    return math.ceil(rows / stage.gradient_accumulation_steps)


def at_once(model: ModelSpec, shape: Shape, *, group: int, width: int, place: Place) -> int:
    """The rows that are sampled together at most: whole groups, one at least."""
    each = 2 * shape.layers * shape.kv_size * size_of(model) * width + SAMPLED_WORD * shape.vocabulary
    return max(1, int(place.sampling_room // each) // group) * group


def _evaluation(spec: RunSpec, shape: Shape, tokens: Tokens, place: Place) -> Phase:
    """Held-out prompts in batches; a few of their rows are scored."""
    group, longest = spec.evaluation.num_generations_eval, spec.max_completion_length
    device, rows = place.device, spec.task.eval_prompts * group
    found = weights(spec.language_model, shape, device)
    batch = at_once(spec.language_model, shape, group=group, width=tokens.prompt + longest, place=place)
    added = [
        work(
            spec.language_model,
            shape,
            Rows(count=min(rows, most), group=group, prompt=tokens.prompt, completion=longest),
            device,
        )
        for work, most in ((sampling, batch), (scoring, SCORED_EVALUATION))
    ]
    worse = max(added, key=lambda parts: sum(parts.values()))
    moments = 2 * found.trainable * found.each
    return Phase(stage="", name="evaluate", parts={**found.held, "moments": moments, **worse})


def sampling(model: ModelSpec, shape: Shape, rows: Rows, device: Device) -> Parts:
    """What sampling adds: folded weights, those put side by side, the KV cache, one token's logits."""
    size, layers = size_of(model), shape.layers
    folds = model.lora is not None and model.dtype == "float32" and model.mixed_precision == "no"
    folded = sum(math.prod(shape.linears[name]) for name in targets(model, shape)) * layers * 4 if folds else 0
    beside = layers * shape.block_linear * size
    joins = shape.family in QUICK and device == "cpu" and beside <= JOINED
    casts = model.mixed_precision != "no"
    copied = (beside if joins or casts else 0) + (shape.vocabulary * shape.hidden * size if casts else 0)
    lean = shape.family in QUICK and model.load_in_4bit != "always" and (joins or device == "cuda" or not casts)
    each = 2 * shape.kv_size * size  # bytes of one token's keys and values in one block
    if lean:
        # Room for drawn tokens is doubled block by block, the smaller one still there.
        room = rows.completion if rows.completion <= ROOM[device] else 1.5 * rows.completion
        cache = layers * each * (rows.prompts * rows.prompt + int(rows.count * room))
    else:
        repeated = 2 * shape.query_size * size  # one layer's, once for each head
        cache = rows.count * rows.width * (each * layers + each + repeated)  # a token is added by copying one layer's
    return {
        "folded weights": folded,
        "joined weights": copied if lean else 0,
        "KV cache": cache,
        "logits": rows.count * shape.vocabulary * SAMPLING_LOGITS,
    }


def scoring(model: ModelSpec, shape: Shape, rows: Rows, device: Device) -> Parts:
    """What a forward without gradients adds: one layer's intermediate results, and the logits."""
    shared = shape.family in QUICK
    layer = (3 * shape.intermediate + 4 * shape.hidden) * size_of(model)
    return {
        "activations": rows.tokens(shared=shared) * layer + rows.count * rows.width**2 * size_of(model),
        "logits": head(model, shape, rows, device, entropy=False, learns=False),
    }


def _layers_with_gradients(model: ModelSpec, shape: Shape) -> int:
    """Blocks that keep anything: from the lowest one with a weight that moves, up."""
    if model.trainable is None:
        return shape.layers
    moving = [name for name in shape.parameters() if moves(model, name)]
    if any("embed_tokens" in name for name in moving):
        return shape.layers
    blocks = [int(name.split(".")[2]) for name in moving if name.startswith("model.layers.")]
    return shape.layers - min(blocks, default=shape.layers)


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
