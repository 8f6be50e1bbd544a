"""What one pass over rows takes, from shapes: what its blocks keep for backward, what attention does, the head's table.

Counted by reading what the quick path keeps (docs/decisions/0012): prompts run once for their completions, attention of
short rows on the CPU as plain products, log-probs by chunks of the head. Where a model cannot go that way every row has
its prompt and all its logits. Not here: phases (memory), seconds (pace).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Literal

from core.config import ModelSpec
from core.health.before.resources.shapes import ATTENTION, MLP, Shape

Device = Literal["cpu", "cuda"]
QUICK = ("llama", "qwen2", "qwen3")  # core.policies.lm.fast.decoder_weights
SCORES = 2**26  # core.policies.lm.fast.attention: bytes up to which attention is plain products
CHUNK: Mapping[Device, int] = {"cpu": 2**26, "cuda": 2**28}  # core.policies.lm.head
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
    wanted = model.lora.target_modules if model.lora is not None else ()
    return [name for name in shape.linears if name in wanted]


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
