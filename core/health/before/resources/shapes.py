"""The shapes of a decoder-only transformer: from its configuration, or from a small table of published ones.

Exact for the families in `EXACT` (every parameter with its transformers name); any other family is taken to be built
like Llama, and says so. Not here: bytes (memory), where a configuration lies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from core.errors import ModelError

EXACT = ("llama", "mistral", "qwen2", "qwen3")
ATTENTION, MLP = ("q_proj", "k_proj", "v_proj", "o_proj"), ("gate_proj", "up_proj", "down_proj")


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """One model. Numbers are elements, not bytes."""

    family: str
    vocabulary: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    intermediate: int
    tied: bool  # the head's weights are the embedding's
    biases: tuple[str, ...] = ()  # linear layers of a block that have one
    head_norms: bool = False  # Qwen3: queries and keys are normalised head by head

    @property
    def exact(self) -> bool:
        """Whether the family is one whose layers are known one by one."""
        return self.family in EXACT

    @property
    def query_size(self) -> int:
        """Elements of one token's queries, and of what attention puts out."""
        return self.heads * self.head_size

    @property
    def kv_size(self) -> int:
        """Elements of one token's keys; its values are as many."""
        return self.kv_heads * self.head_size

    @property
    def linears(self) -> Mapping[str, tuple[int, int]]:
        """The linear layers of one block: name -> (inputs, outputs)."""
        return {
            "q_proj": (self.hidden, self.query_size),
            "k_proj": (self.hidden, self.kv_size),
            "v_proj": (self.hidden, self.kv_size),
            "o_proj": (self.query_size, self.hidden),
            "gate_proj": (self.hidden, self.intermediate),
            "up_proj": (self.hidden, self.intermediate),
            "down_proj": (self.intermediate, self.hidden),
        }

    @property
    def block_linear(self) -> int:
        """Weights of one block's linear layers, biases left out: what 4-bit loading makes small."""
        return sum(prod(size) for size in self.linears.values())

    @property
    def total(self) -> int:
        """Every parameter; weights that are tied count once."""
        return sum(self.parameters().values())

    def parameters(self) -> dict[str, int]:
        """Name -> elements, named as transformers names them."""
        sizes = {"model.embed_tokens.weight": self.vocabulary * self.hidden}
        for layer in range(self.layers):
            sizes |= {f"model.layers.{layer}.{name}": size for name, size in self._block().items()}
        sizes["model.norm.weight"] = self.hidden
        if not self.tied:
            sizes["lm_head.weight"] = self.vocabulary * self.hidden
        return sizes

    def _block(self) -> dict[str, int]:
        sizes = {}
        for name, (inputs, outputs) in self.linears.items():
            full = f"{'self_attn' if name in ATTENTION else 'mlp'}.{name}"
            sizes[f"{full}.weight"] = inputs * outputs
            if name in self.biases:
                sizes[f"{full}.bias"] = outputs
        if self.head_norms:
            sizes |= {"self_attn.q_norm.weight": self.head_size, "self_attn.k_norm.weight": self.head_size}
        return sizes | {"input_layernorm.weight": self.hidden, "post_attention_layernorm.weight": self.hidden}


def from_config(config: Mapping[str, Any], source: str) -> Shape:
    """The shape that a transformers config.json describes. Raises ModelError naming `source` and what it lacks."""
    family = str(config.get("model_type", "unknown"))
    names = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    values = {name: config.get(name) for name in names}
    odd = [name for name, value in values.items() if not isinstance(value, int) or value < 1]
    if odd:
        raise ModelError(
            f"config.json of {source!r} ({family}) has no {odd[0]}: its memory cannot be worked out from shapes; "
            "allowed: a decoder-only language model"
        )
    size = {name: int(value or 0) for name, value in values.items()}
    heads = size["num_attention_heads"]
    return Shape(
        family=family,
        vocabulary=size["vocab_size"],
        hidden=size["hidden_size"],
        layers=size["num_hidden_layers"],
        heads=heads,
        kv_heads=int(config.get("num_key_value_heads") or heads),
        head_size=int(config.get("head_dim") or size["hidden_size"] // heads),
        intermediate=size["intermediate_size"],
        tied=bool(config.get("tie_word_embeddings", family in ("gemma", "gemma2"))),
        biases=_biases(family, config),
        head_norms=family == "qwen3",
    )


def _biases(family: str, config: Mapping[str, Any]) -> tuple[str, ...]:
    if family == "qwen2":
        return ATTENTION[:3]  # built in: its configuration does not say
    attention = ATTENTION if config.get("attention_bias") else ()
    return attention + (MLP if config.get("mlp_bias") else ())


def _qwen2(hidden: int, layers: int, heads: int, kv_heads: int, intermediate: int) -> Shape:
    return Shape(
        family="qwen2",
        vocabulary=151936,
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_size=hidden // heads,
        intermediate=intermediate,
        tied=True,
        biases=ATTENTION[:3],
    )


def _smollm2(hidden: int, layers: int, heads: int, kv_heads: int, intermediate: int) -> Shape:
    as_qwen2 = _qwen2(hidden, layers, heads, kv_heads, intermediate)
    return replace(as_qwen2, family="llama", vocabulary=49152, biases=())


# From the config.json of each model's page on the hub: what can be said of a model that is not on this machine.
PUBLISHED: Mapping[str, Shape] = {
    "builtin:tiny": replace(_qwen2(128, 1, 4, 2, 256), vocabulary=400),
    "HuggingFaceTB/SmolLM2-135M-Instruct": _smollm2(576, 30, 9, 3, 1536),
    "HuggingFaceTB/SmolLM2-360M-Instruct": _smollm2(960, 32, 15, 5, 2560),
    "HuggingFaceTB/SmolLM2-1.7B-Instruct": _smollm2(2048, 24, 32, 32, 8192),
    "Qwen/Qwen2.5-0.5B-Instruct": _qwen2(896, 24, 14, 2, 4864),
    "Qwen/Qwen2.5-1.5B-Instruct": _qwen2(1536, 28, 12, 2, 8960),
    "Qwen/Qwen2.5-3B-Instruct": _qwen2(2048, 36, 16, 2, 11008),
    "Qwen/Qwen2.5-7B-Instruct": replace(_qwen2(3584, 28, 28, 4, 18944), vocabulary=152064, tied=False),
}
