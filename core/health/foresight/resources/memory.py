"""Peak memory of a run by part and by phase, from shapes: what is held, and the most that each phase adds to it.

    held       process, weights, adapter, reference, and once there was an update the optimiser's moments
    sample     + weights with the adapter added in, KV cache, the logits of one token
    score      + one forward without gradients, logits of every completion token (three copies at the worst moment)
    learn      + gradients, activations kept for backward, logits
    evaluate   as sample and score, for the held-out prompts

Bytes. Worst case: longest prompts, every completion at its full length. Counted by reading what each layer of a
Llama-like decoder keeps for backward; docs/benchmarks.md has the measurements beside it. Not here: the shapes, seconds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from core.health.foresight.resources.shapes import ATTENTION, MLP, Shape
from core.spec import GrpoStage, ModelSpec, RunSpec, StageBase

Device = Literal["cpu", "cuda"]
PROCESS: Mapping[Device, int] = {"cpu": 425 * 2**20, "cuda": 600 * 2**20}  # the libraries; CUDA's context and workspace
FOUR_BIT = 0.5 + 4 / 64  # bytes of a weight: nf4, and a scale in fp32 for each 64
LOGITS = 12  # bytes of a completion token's vocabulary entry: three fp32 copies, forward and backward alike
SAMPLED_WORD = 24  # bytes of a row's vocabulary entry, as core.policies.batches bounds them
HEAP = 0.7  # of all blocks' activations: what the C library does not give back on the CPU, checkpointing or not
SAMPLING_LOGITS = 20  # of a row's: logits, log-probs, probabilities in fp32, their sum in fp64
SCORED_EVALUATION = 8  # rows of an evaluation that are scored
SAMPLING_ROOM: Mapping[Device, float] = {"cpu": 2**30, "cuda": 0.25}  # bytes, or a share: core.policies.batches' bound
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
    size = 2 if spec.dtype == "bfloat16" else 4
    held = {"process": PROCESS[device], "weights": shape.total * size}
    if spec.load_in_4bit == "always":
        linear = shape.layers * shape.block_linear
        held["weights"] = (shape.total - linear) * size + int(linear * FOUR_BIT)
    if spec.lora is not None:
        adapter = sum(spec.lora.r * sum(shape.linears[name]) for name in targets(spec, shape)) * shape.layers
        each = 4  # peft keeps adapters in fp32, whatever the weights are
        return Weights(total=shape.total, trainable=adapter, each=each, held={**held, "adapter": adapter * each})
    moved = sum(elements for name, elements in shape.parameters().items() if _moves(spec, name))
    held["reference"] = moved * size
    return Weights(total=shape.total, trainable=moved, each=size, held=held)


def targets(spec: ModelSpec, shape: Shape) -> list[str]:
    """The linear layers of a block that carry an adapter."""
    wanted = spec.lora.target_modules if spec.lora is not None else ()
    return [name for name in shape.linears if name in wanted]


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
        self.weights = weights(spec.model, shape, place.device)
        self.prompt = tokens.prompt
        self.sampled = self.stage.rows_per_step > 0
        self.completion = self.stage.max_completion_length if self.sampled else tokens.answer
        moments = 2 * self.weights.trainable * self.weights.each
        self.held: Parts = {**self.weights.held, "moments": moments}

    def phases(self) -> list[Phase]:
        """What the stage does on a step."""
        if not self.sampled:
            return [self._learn()]
        model, shape, width = self.spec.model, self.shape, self.prompt + self.completion
        rows = at_once(model, shape, group=self._group(), width=width, place=self.place)
        sampled = sampling(model, shape, min(rows, self.stage.rows_per_step), width)
        scored = scoring(model, shape, self._scored_rows(), self.prompt, self.completion)
        return [
            Phase(stage=self.name, name="sample", parts={**self.held, **sampled}),
            Phase(stage=self.name, name="score", parts={**self.held, **scored}),
            self._learn(),
        ]

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
        model, shape, rows = self.spec.model, self.shape, micro_rows(self.stage)
        width = self.prompt + self.completion
        layers = _layers_with_gradients(model, shape)
        block = rows * width * kept(model, shape) + rows * width**2 * _size(model)
        if model.gradient_checkpointing:
            inputs = layers * rows * width * shape.hidden * _size(model)
            activations, backward = inputs, block  # one layer's are made again after the logits are gone
        else:
            activations, backward = layers * block, 0
        autocast = 2 * shape.layers * shape.block_linear if model.mixed_precision == "bf16" else 0
        logits = rows * self.completion * shape.vocabulary * (LOGITS + 4 * self._entropy())
        gradients = self.weights.trainable * self.weights.each
        activations += max(0, backward - logits) + autocast
        parts = {
            **self.held,
            "gradients": gradients * 2,  # one term's beside the sum, on a step that an evaluation follows
            "activations": activations,
            "logits": logits,
            "heap": int(HEAP * layers * block) if self.place.device == "cpu" else 0,
        }
        return Phase(stage=self.name, name="learn", parts=parts)

    def _entropy(self) -> int:
        stage = self.stage
        return int(isinstance(stage, GrpoStage) and (stage.entropy_coef.ever or stage.adaptive_entropy is not None))


def micro_rows(stage: StageBase) -> int:
    """Rows of one forward and backward pass."""
    rows = math.ceil((stage.rows_per_step or stage.prompts_per_step) / getattr(stage, "minibatches", 1))
    return math.ceil(rows / stage.gradient_accumulation_steps)


def at_once(model: ModelSpec, shape: Shape, *, group: int, width: int, place: Place) -> int:
    """The rows that are sampled together at most: whole groups, one at least."""
    each = 2 * shape.layers * shape.kv_size * _size(model) * width + SAMPLED_WORD * shape.vocabulary
    return max(1, int(place.sampling_room // each) // group) * group


def _evaluation(spec: RunSpec, shape: Shape, tokens: Tokens, place: Place) -> Phase:
    """Held-out prompts in batches; a few of their rows are scored."""
    group, longest = spec.evaluation.num_generations_eval, spec.max_completion_length
    found, rows = weights(spec.model, shape, place.device), spec.task.eval_prompts * group
    batch = at_once(spec.model, shape, group=group, width=tokens.prompt + longest, place=place)
    sampled = sampling(spec.model, shape, min(rows, batch), tokens.prompt + longest)
    scored = scoring(spec.model, shape, min(rows, SCORED_EVALUATION), tokens.prompt, longest)
    worse = max(sampled, scored, key=lambda parts: sum(parts.values()))
    moments = 2 * found.trainable * found.each
    return Phase(stage="", name="evaluate", parts={**found.held, "moments": moments, **worse})


def sampling(model: ModelSpec, shape: Shape, rows: int, width: int) -> Parts:
    """What sampling adds: folded weights, the KV cache of `rows` rows of `width` tokens, one token's logits."""
    folds = model.lora is not None and model.dtype == "float32" and model.mixed_precision == "no"
    folded = sum(math.prod(shape.linears[name]) for name in targets(model, shape)) * shape.layers * 4 if folds else 0
    cache = rows * width * 2 * shape.kv_size * _size(model)
    repeated = rows * width * 2 * shape.query_size * _size(model)  # one layer's keys and values, once for each head
    return {
        "folded weights": folded,
        "KV cache": cache * shape.layers + cache + repeated,  # a token is added by copying one layer's cache
        "logits": rows * shape.vocabulary * SAMPLING_LOGITS,
    }


def scoring(model: ModelSpec, shape: Shape, rows: int, prompt: int, completion: int) -> Parts:
    """What a forward without gradients adds: one layer's intermediate results, and the logits."""
    width = prompt + completion
    layer = (3 * shape.intermediate + 4 * shape.hidden) * _size(model)
    return {
        "activations": rows * width * layer + rows * width**2 * _size(model),
        "logits": rows * completion * shape.vocabulary * LOGITS,
    }


def kept(model: ModelSpec, shape: Shape) -> int:
    """Bytes that one block keeps of one token for backward.

    Two norms keep their input in fp32; attention its queries, keys and values (repeated for each head) and its output;
    the MLP three intermediates. A linear layer keeps its input where its own weights move, or carry an adapter; an
    adapter in fp32 beside bf16 weights keeps a cast of its own, under dropout a dropped one and its mask.
    """
    size, moved, lora = _size(model), model.lora is None, model.lora
    carrying = targets(model, shape)
    norms = 2 * shape.hidden * 4 + (2 * shape.hidden * size if moved else 0)
    attention = 4 * shape.query_size * size + (2 * shape.query_size * 4 if shape.head_norms else 0)
    mlp = 3 * shape.intermediate * size
    if moved or set(carrying) & set(ATTENTION[:3]):
        attention += shape.hidden * size
    if moved or set(carrying) & set(MLP[:2]):
        mlp += shape.hidden * size
    if moved or "down_proj" in carrying:
        mlp += shape.intermediate * size
    if lora is None:
        return norms + attention + mlp
    inputs = sum(shape.linears[name][0] for name in carrying)
    copies = (5 if lora.lora_dropout else 4 if size < 4 else 0) * inputs
    return norms + attention + mlp + copies + 4 * lora.r * len(carrying)


def _layers_with_gradients(model: ModelSpec, shape: Shape) -> int:
    """Blocks that keep anything: from the lowest one with a weight that moves, up."""
    if model.trainable is None:
        return shape.layers
    moving = [name for name in shape.parameters() if _moves(model, name)]
    if any("embed_tokens" in name for name in moving):
        return shape.layers
    blocks = [int(name.split(".")[2]) for name in moving if name.startswith("model.layers.")]
    return shape.layers - min(blocks, default=shape.layers)


def _moves(model: ModelSpec, name: str) -> bool:
    return model.trainable is None or any(fnmatchcase(name, pattern) for pattern in model.trainable)


def _size(model: ModelSpec) -> int:
    """Bytes of one activation; 4-bit weights compute in bf16."""
    return 2 if model.computes_in == "bfloat16" else 4
