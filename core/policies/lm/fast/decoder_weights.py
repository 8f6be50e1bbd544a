"""A plain decoder's weights as sampling reads them, block by block; nothing where something is not as it was made.

Not here: what runs them (core.policies.lm.fast.decoder_step, core.policies.lm.fast.fixed).

Shape suffixes: D size of a head.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from core.policies.lm.fast.plain import plain_decoder
from core.policies.lm.fast.products import Product, weights_of

STEADY = ("default", "linear", "llama3", "yarn")  # rotary embeddings that a position has whatever the length
ASKS = "enable_input_require_grads"


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """One layer's weights."""

    before: Tensor  # of the norm before attention
    qkv: Product
    qk_norm: Tensor | None  # (heads, D), Qwen3's
    out: Product
    between: Tensor  # of the norm before the MLP
    gate_up: Product
    down: Product
    scaling: float
    biased_keys: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Weights:
    """All that a token goes through; `base` is the transformers model, for what is no weight."""

    base: Any
    blocks: list[Block]
    head: Product
    dtype: torch.dtype

    @property
    def centred(self) -> bool:
        """Whether keys are kept about their mean: see core.policies.lm.fast.attention.centred."""
        return self.dtype.itemsize <= 2 and any(block.biased_keys for block in self.blocks)


def weights(base: Any, dtype: torch.dtype, *, joined: bool) -> Weights | None:
    """The model's weights in this dtype; None where only the model itself can run a token.

    It can for a plain decoder in eval mode whose layers are what transformers and peft made them: no hook, no other
    kind of layer, nothing quantised. `joined`: layers of one input are copied into one matrix.
    """
    if not plain_decoder(base) or base.training or not _as_made(base):
        return None
    if type(base.model.embed_tokens) is not torch.nn.Embedding:  # PEFT's has an adapter beside its weight
        return None
    blocks = [_block(layer, dtype, joined) for layer in base.model.layers]
    head = weights_of(base.lm_head)
    if head is None or not all(blocks):
        return None
    product = Product([head], dtype=dtype, joined=joined)
    return Weights(base=base, blocks=[block for block in blocks if block], head=product, dtype=dtype)


def turns(weights: Weights, positions: int) -> Tensor:
    """Cosines and sines of every position, (2, positions, D): q * cos + roll(q, D/2) * sin is q turned."""
    decoder = weights.base.model
    like = decoder.embed_tokens.weight
    ids = torch.arange(positions, device=like.device).unsqueeze(0)
    cos, sin = (one[0] for one in decoder.rotary_emb(like[:1].unsqueeze(0), ids))
    half = sin.shape[-1] // 2
    return torch.stack([cos, torch.cat([-sin[:, :half], sin[:, half:]], dim=-1)])


def size_of(base: Any, dtype: torch.dtype) -> int:
    """Bytes of all blocks' weights in this dtype."""
    return sum(int(weight.numel()) for weight in base.model.layers.parameters()) * dtype.itemsize


def _block(layer: Any, dtype: torch.dtype, joined: bool) -> Block | None:
    attention, mlp = layer.self_attn, layer.mlp

    def product(*modules: Any) -> Product | None:
        found = [weights_of(module) for module in modules]
        known = [one for one in found if one is not None]
        return Product(known, dtype=dtype, joined=joined) if len(known) == len(found) else None

    qkv = product(attention.q_proj, attention.k_proj, attention.v_proj)
    out, gate_up, down = product(attention.o_proj), product(mlp.gate_proj, mlp.up_proj), product(mlp.down_proj)
    if qkv is None or out is None or gate_up is None or down is None:
        return None
    qk_norm = None
    if hasattr(attention, "q_norm"):
        config = attention.config
        qk_norm = torch.cat(
            [
                attention.q_norm.weight.detach().expand(config.num_attention_heads, -1),
                attention.k_norm.weight.detach().expand(config.num_key_value_heads, -1),
            ]
        )
    return Block(
        before=layer.input_layernorm.weight.detach(),
        qkv=qkv,
        qk_norm=qk_norm,
        out=out,
        between=layer.post_attention_layernorm.weight.detach(),
        gate_up=gate_up,
        down=down,
        scaling=attention.scaling,
        biased_keys=attention.k_proj.bias is not None,
    )


def _as_made(base: Any) -> bool:
    """Whether every part runs the forward of its class, and nothing before or after it."""
    rotary = getattr(base.model, "rotary_emb", None)
    if getattr(rotary, "rope_type", None) not in STEADY:
        return False
    return not any(
        _minded(module) or module._forward_pre_hooks or "forward" in vars(module) or module.training
        for module in base.modules()
    )


def _minded(module: Any) -> bool:
    """Whether something looks at its outputs; what gradient checkpointing leaves behind only asks for gradients."""
    return any(ASKS not in getattr(hook, "__qualname__", "") for hook in module._forward_hooks.values())
