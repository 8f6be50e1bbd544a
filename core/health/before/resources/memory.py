"""Peak memory of a run by part and by phase, from shapes; and what a run leaves on the disk.

    held       process, weights, adapter, reference, and once there was an update the optimiser's moments
    sample     + weights with the adapter added in or side by side, KV cache, the logits of one token
    score      + one forward without gradients, logits
    learn      + gradients, activations kept for backward, logits
    evaluate   as sample and score, for the held-out prompts

Bytes. Worst case: longest prompts, every completion at its full length; docs/benchmarks.md has measurements beside it.
What one pass over rows keeps is counted by reading what the quick path keeps (docs/decisions/0012): prompts run once
for their completions, attention of short rows on the CPU as plain products, log-probs by chunks of the head. Where a
model cannot go that way every row has its prompt and all its logits.
On the disk: checkpoints, what a run exports, its records; and the model's own files. Not here: the shapes, seconds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Literal

from core.algorithms.names import OPTIMISERS
from core.config import GrpoStage, ModelSpec, RunSpec, StageBase
from core.health.before.budget import budget
from core.health.before.resources.shapes import ATTENTION, MLP, Shape
from core.health.before.view import views

Device = Literal["cpu", "cuda"]
QUICK = ("llama", "qwen2", "qwen3")  # core.policies.lm.fast.decoder_weights
SCORES = 2**26  # core.policies.lm.fast.attention: bytes up to which attention is plain products
CHUNK: Mapping[Device, int] = {"cpu": 2**26, "cuda": 2**28}  # core.policies.lm.forward
WIDTHS, INNERS = 10, 4  # core.policies.lm.batches: what a token takes there
LOGITS = 12  # bytes of a completion token's vocabulary entry where all are there: three fp32 copies, either way


@dataclass(frozen=True, kw_only=True, slots=True)
class Rows:
    """`count` completions of `completion` tokens, `group` of each prompt of `prompt` tokens."""

    count: int
    group: int
    prompt: int
    completion: int

    @property
    def width(self) -> int:
        """Tokens of a prompt and its completion."""
        return self.prompt + self.completion

    @property
    def prompts(self) -> int:
        """How many they have."""
        return math.ceil(self.count / self.group)

    @property
    def drawn(self) -> int:
        """Tokens of all completions."""
        return self.count * self.completion

    def tokens(self, *, shared: bool) -> int:
        """What is run: each prompt once, or with every row."""
        return self.prompts * self.prompt + self.drawn if shared else self.count * self.width

    def within(self, budget: int) -> Rows:
        """As many of them as a micro-batch within this budget of tokens has: whole groups where one fits, else rows."""
        groups = budget // (self.prompt + self.group * self.completion)
        fit = groups * self.group if groups else (budget - self.prompt) // max(1, self.completion)
        return replace(self, count=max(1, min(self.count, fit)))


def size_of(model: ModelSpec) -> int:
    """Bytes of one activation; 4-bit weights compute in bf16."""
    return 2 if model.computes_in == "bfloat16" else 4


def targets(model: ModelSpec, shape: Shape) -> list[str]:
    """The linear layers of a block that carry an adapter."""
    if model.lora is None:
        return []
    return [name for name in shape.linears if model.lora.all_linear or name in model.lora.target_modules]


def moves(model: ModelSpec, name: str) -> bool:
    """Whether training without an adapter moves this parameter."""
    return model.trainable is None or any(fnmatchcase(name, pattern) for pattern in model.trainable)


def shares(shape: Shape) -> bool:
    """Whether learning runs a prompt once for all of its completions."""
    return shape.family in QUICK


def tokens_at_once(model: ModelSpec, shape: Shape, room: float) -> int:
    """The tokens of a micro-batch at most, in this much memory; core.policies.lm.batches' own rule."""
    held = model.itemsize
    return max(1, int(room // (shape.layers * (WIDTHS * shape.hidden + INNERS * shape.intermediate) * held)))


def block(model: ModelSpec, shape: Shape, rows: Rows, device: Device) -> int:
    """Bytes that one block keeps of these rows for backward."""
    return rows.tokens(shared=shares(shape)) * kept(model, shape) + attention(model, shape, rows, device)


def kept(model: ModelSpec, shape: Shape) -> int:
    """Bytes that one block keeps of one token for backward, attention's own left out.

    Two norms keep their input (in fp32 where they are transformers' own, their product too where their weights move),
    the MLP three intermediates. A linear layer keeps its input where its own weights move, or carry an adapter. PEFT's
    own adapter in fp32 beside bf16 weights keeps a cast of its own, under dropout a dropped one and its mask.
    """
    size, moved, quick = size_of(model), model.lora is None, shares(shape)
    carrying = targets(model, shape)
    norms = 2 * shape.hidden * (size if quick else 4) + (0 if quick or not moved else 2 * shape.hidden * size)
    inputs = 0
    if moved or set(carrying) & set(ATTENTION[:3]):
        inputs += shape.hidden
    if moved or set(carrying) & set(MLP[:2]):
        inputs += shape.hidden
    if moved or "down_proj" in carrying:
        inputs += shape.intermediate
    plain = norms + (inputs + 3 * shape.intermediate) * size
    if model.lora is None:
        return plain
    lora = model.lora
    of_adapters = sum(shape.linears[name][0] for name in carrying)
    fused = quick and model.load_in_4bit != "always" and model.mixed_precision == "no"
    each = 5 if lora.lora_dropout else 4 if size < 4 and not fused else 0
    return plain + each * of_adapters + (4 if each else size) * lora.r * len(carrying)


def attention(model: ModelSpec, shape: Shape, rows: Rows, device: Device) -> int:
    """Bytes that one block's attention keeps: queries, keys, values, outputs, and weights or a mask."""
    size, shared = size_of(model), shares(shape)
    tokens = rows.tokens(shared=shared)
    heads = 2 * shape.query_size * (size if shared else 4) if shape.head_norms else 0
    own = tokens * (2 * shape.query_size * size + heads)
    if shared and device == "cpu" and 4 * shape.heads * rows.drawn * rows.width <= SCORES:
        # The softmax, and what of it is multiplied with the values; a prompt's own in fp32 and as it is multiplied.
        weights = 2 * shape.heads * rows.drawn * rows.width * size
        of_prompts = shape.heads * rows.prompts * rows.prompt**2 * (size if size == 4 else 4 + size)
        return own + tokens * 2 * shape.kv_size * size + weights + of_prompts
    # Each row has its prompt's keys and values, repeated for each head, and a mask.
    return own + rows.count * rows.width * 2 * shape.query_size * size + rows.count * rows.width**2 * size


def head(model: ModelSpec, shape: Shape, rows: Rows, device: Device, *, entropy: bool, learns: bool) -> int:
    """Bytes of the drawn tokens' logits: a chunk of them and a vector or two for each token, or all."""
    each = LOGITS + 4 * entropy
    if shape.family not in QUICK:
        return rows.drawn * shape.vocabulary * each
    chunk = min(rows.drawn, max(1, CHUNK[device] // (4 * shape.vocabulary)))
    name = "model.embed_tokens.weight" if shape.tied else "lm_head.weight"
    if learns and model.lora is None and moves(model, name):  # its chunks are run again
        return chunk * shape.vocabulary * each
    size = size_of(model)
    table = chunk * shape.vocabulary * (4 + (size if size < 4 else 0) + 4 * entropy)
    return table + (rows.drawn * shape.hidden * 4 * (1 + entropy) if learns else 0)


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


def weights(run: RunSpec, shape: Shape, device: Device) -> Weights:
    """What a loaded model holds before its first step: process, weights, adapter, reference."""
    spec = run.language_model
    size = spec.itemsize
    held = {"process": PROCESS[device], "weights": shape.total * size}
    if spec.load_in_4bit == "always":
        linear = shape.layers * shape.block_linear
        held["weights"] = (shape.total - linear) * size + int(linear * FOUR_BIT)
    if spec.lora is not None:
        adapter = sum(spec.lora.r * sum(shape.linears[name]) for name in targets(spec, shape)) * shape.layers
        each = 4  # peft keeps adapters in fp32, whatever the weights are
        held["adapter"] = adapter * each
        if run.syncs_reference:  # a second adapter; one that stays is the base alone
            held["reference"] = adapter * each
        return Weights(total=shape.total, trainable=adapter, each=each, held=held)
    moved = sum(elements for name, elements in shape.parameters().items() if moves(spec, name))
    held["reference"] = moved * size
    return Weights(total=shape.total, trainable=moved, each=size, held=held)


def moments(weights: Weights, stage: StageBase) -> int:
    """Bytes of what a stage's optimiser keeps of the weights that it moves."""
    traits = OPTIMISERS[stage.optim]
    return traits.moments * weights.trainable * (1 if traits.eight_bit else weights.each)


def phases(spec: RunSpec, shape: Shape, tokens: Tokens, place: Place) -> list[Phase]:
    """Every phase of every stage, the evaluation last."""
    stages = (_Stage(spec, name, shape, tokens, place) for name in spec.stages)
    return [*(phase for stage in stages for phase in stage.phases()), _evaluation(spec, shape, tokens, place)]


def peak(phases: Sequence[Phase]) -> Phase:
    """The phase that needs most."""
    return max(phases, key=lambda phase: phase.bytes)


class _Stage:
    """The phases of one stage."""

    def __init__(self, spec: RunSpec, name: str, shape: Shape, tokens: Tokens, place: Place) -> None:
        self.spec, self.name, self.shape, self.place = spec, name, shape, place
        self.stage: StageBase = spec.stages[name]
        self.weights = weights(spec, shape, place.device)
        self.prompt = tokens.prompt
        self.sampled = self.stage.rows_per_step > 0
        self.completion = self.stage.max_completion_length if self.sampled else tokens.answer
        self.held: Parts = {**self.weights.held, "moments": moments(self.weights, self.stage)}

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
        layers, one_block = _layers_with_gradients(model, shape), block(model, shape, rows, device)
        if model.gradient_checkpointing:
            inputs = layers * rows.tokens(shared=shares(shape)) * shape.hidden * size_of(model)
            activations, backward = inputs, one_block  # one layer's are made again after the logits are gone
        else:
            activations, backward = layers * one_block, 0
        autocast = 2 * shape.layers * shape.block_linear if model.mixed_precision == "bf16" else 0
        logits = head(model, shape, rows, device, entropy=self._entropy(), learns=True)
        gradients = self.weights.trainable * self.weights.each
        activations += max(0, backward - logits) + autocast
        parts = {
            **self.held,
            "gradients": gradients * 2,  # one term's beside the sum, on a step that an evaluation follows
            "activations": activations,
            "logits": logits,
            "heap": int(HEAP * layers * one_block) if device == "cpu" else 0,
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
    held = weights(spec, shape, device)
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
    most = max(moments(held, stage) for stage in spec.stages.values())
    return Phase(stage="", name="evaluate", parts={**held.held, "moments": most, **worse})


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

    checkpoint: int  # one of them: weights and a reference that move, and what the optimiser keeps of them
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
    stored = weights(spec, shape, device)
    copies = 2 if spec.syncs_reference else 1  # a reference that moves is in a checkpoint, too
    checkpoint = copies * stored.trainable * stored.each + max(moments(stored, at) for at in spec.stages.values())
    size = spec.language_model.itemsize
    model = shape.total * size + TOKENIZER
    budgets = [(view, budget(view)) for view in views(spec)]
    records = STORE + sum(
        each.max_steps * STEP + each.max_completions_with_refills * (SAMPLE + TOKEN * view.stage.max_completion_length)
        for view, each in budgets
    )
    return Disk(
        checkpoint=checkpoint,
        checkpoints=checkpoint * (spec.checkpoints.save_total_limit + 2),  # the best, and the one being written
        export=stored.trainable * stored.each + TOKENIZER if spec.language_model.lora is not None else model,
        merged=model if spec.export.merged and spec.language_model.lora is not None else 0,
        records=records,
    )
