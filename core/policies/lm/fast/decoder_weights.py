"""A plain decoder's weights as sampling reads them, block by block; nothing where something is not as it was made.

Which models are decoders and nothing more, so that their parts may be run otherwise than by their own forward; their
linear layers of one input as one product; their blocks. Families that bound or scale their logits, or look through a
window, are run as transformers runs them.
Not here: what runs these weights (decoder_step.py); training, where weights move and gradients are wanted.

Shape suffixes: R rows, side by side (I, R) or under each other (R, I), I inputs, O outputs of all layers under each
other, A ranks of their adapters likewise, D size of a head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from core.policies.lm.fast.fused_layers import is_plain_lora

PLAIN_DECODERS = ("llama", "qwen2", "qwen3")  # read in the tested transformers: a 4-D mask reaches attention unchanged
FULL_ATTENTION = {"full_attention"}
FIXED_ROPE = ("default", "linear", "llama3", "yarn")  # rotary embeddings that a position has whatever the length
GRADIENT_HOOK = "enable_input_require_grads"  # gradient checkpointing leaves it behind


def unwrap_adapter(model: Any) -> Any:
    """The transformers model that a PEFT model wraps; any other as it is."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def is_plain_decoder(model: Any) -> bool:
    """True when this causal LM is a decoder that sees all before it, and a head on its last hidden state, no more."""
    known = type(model).__module__.startswith("transformers.models.") and model.config.model_type in PLAIN_DECODERS
    return known and _sees_all(model.config)


def takes_ready_mask(config: Any) -> bool:
    """True when the model hands a ready (rows, 1, 1, keys) mask to attention as it is.

    Working one out of the 2-D mask costs transformers a sixth of a small model's token. But layers with a sliding
    window see less than the whole row, eager attention adds its mask instead of choosing by it, and some families read
    more than padding from the 2-D mask: whoever is not known to be plain gets that one.
    """
    return _sees_all(config) and config.model_type in PLAIN_DECODERS and config._attn_implementation == "sdpa"


def _sees_all(config: Any) -> bool:
    kinds = set(getattr(config, "layer_types", None) or FULL_ATTENTION)
    return kinds == FULL_ATTENTION and getattr(config, "sliding_window", None) is None


@dataclass(frozen=True, kw_only=True, slots=True)
class LinearWeights:
    """What one linear layer computes with: y = x W' + b + (x D') U', the last for each adapter that is on."""

    weight_OI: Tensor
    bias_O: Tensor | None
    adapters: Sequence[tuple[Tensor, Tensor]]  # (A, I) down and (O, A) up, the scaling in it

    def to(self, dtype: torch.dtype) -> LinearWeights:
        """These in another dtype; what has it already is not copied."""
        return LinearWeights(
            weight_OI=self.weight_OI.to(dtype),
            bias_O=None if self.bias_O is None else self.bias_O.to(dtype),
            adapters=[(down.to(dtype), up.to(dtype)) for down, up in self.adapters],
        )


def linear_weights(module: Any) -> LinearWeights | None:
    """A plain linear layer's, or those of a plain LoRA layer on one; None of any other, which computes differently."""
    if type(module) is torch.nn.Linear:
        return LinearWeights(weight_OI=module.weight.detach(), bias_O=_detached(module.bias), adapters=())
    if not is_plain_lora(module):
        return None
    base = module.get_base_layer()
    names = [] if module.disable_adapters or module.merged else module.active_adapters
    adapters = [
        (module.lora_A[name].weight.detach(), module.lora_B[name].weight.detach() * module.scaling[name])
        for name in names
        if name in module.lora_A
    ]
    return LinearWeights(weight_OI=base.weight.detach(), bias_O=_detached(base.bias), adapters=adapters)


class FusedLinear:
    """Layers of the same input as one product, their outputs under each other: (I, R) -> (O, R), or (R, I) -> (R, O).

    All adapters are one product down and one up. `joined` copies the weights into one matrix too, the adapters' first
    factors under them. Else of the weights nothing is copied but what is not of this dtype.
    """

    def __init__(self, layers: Sequence[LinearWeights], *, dtype: torch.dtype, joined: bool) -> None:
        layers = [layer.to(dtype) for layer in layers]
        downs = [down for layer in layers for down, _ in layer.adapters]
        self._out = sum(len(layer.weight_OI) for layer in layers)
        # Each adapter moves the outputs of its own layer only.
        self._up_OA = torch.block_diag(*map(_ups, layers)) if downs else None  # type: ignore[no-untyped-call]
        self._down_AI = torch.cat(downs) if downs and not joined else None
        self._matrices = _joined(layers, downs) if joined else [(layer.weight_OI, layer.bias_O) for layer in layers]

    def columns(self, x_IR: Tensor) -> Tensor:
        """(O, R) for rows that stand side by side, in the product's dtype; no gradients."""
        outputs = [_affine(weight, x_IR, bias) for weight, bias in self._matrices]
        y_OR = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
        if self._up_OA is None:
            return y_OR
        low_AR = y_OR[self._out :] if self._down_AI is None else self._down_AI @ x_IR
        return y_OR[: self._out].addmm_(self._up_OA, low_AR)

    def rows(self, x_RI: Tensor) -> Tensor:
        """(R, O), the same for rows under each other."""
        outputs = [linear(x_RI, weight, bias) for weight, bias in self._matrices]
        y_RO = outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=-1)
        if self._up_OA is None:
            return y_RO
        low_RA = y_RO[:, self._out :] if self._down_AI is None else linear(x_RI, self._down_AI)
        return y_RO[:, : self._out].addmm_(low_RA, self._up_OA.t())


def _joined(layers: Sequence[LinearWeights], downs: Sequence[Tensor]) -> list[tuple[Tensor, Tensor | None]]:
    """One matrix of the layers' weights and what is under them, and one bias where any layer has one."""
    matrices = [*(layer.weight_OI for layer in layers), *downs]
    weight = matrices[0] if len(matrices) == 1 else torch.cat(matrices)
    if all(layer.bias_O is None for layer in layers):
        return [(weight, None)]
    zeros = [layer.weight_OI.new_zeros(len(layer.weight_OI)) for layer in layers]
    biases = [zero if layer.bias_O is None else layer.bias_O for layer, zero in zip(layers, zeros, strict=True)]
    return [(weight, torch.cat([*biases, *(down.new_zeros(len(down)) for down in downs)]))]


def _affine(weight_OI: Tensor, x_IR: Tensor, bias_O: Tensor | None) -> Tensor:
    return weight_OI @ x_IR if bias_O is None else torch.addmm(bias_O.unsqueeze(-1), weight_OI, x_IR)


def _ups(layer: LinearWeights) -> Tensor:
    """The second factors of a layer's adapters side by side, (O, A); without any, A is 0."""
    empty = layer.weight_OI.new_zeros(len(layer.weight_OI), 0)
    return torch.cat([empty, *(up for _, up in layer.adapters)], dim=-1)


def _detached(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.detach()


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockWeights:
    """One layer's weights."""

    attn_norm: Tensor
    qkv: FusedLinear
    qk_norm: Tensor | None  # (heads, D), Qwen3's
    o_proj: FusedLinear
    mlp_norm: Tensor
    gate_up: FusedLinear
    down_proj: FusedLinear
    scaling: float
    biased_keys: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class DecoderWeights:
    """All that a token goes through; `base` is the transformers model, for what is no weight."""

    base: Any
    blocks: list[BlockWeights]
    head: FusedLinear
    dtype: torch.dtype

    @property
    def centre_keys(self) -> bool:
        """True when keys are kept about their mean: see attention.centre_keys."""
        return self.dtype.itemsize <= 2 and any(block.biased_keys for block in self.blocks)


def read_weights(base: Any, dtype: torch.dtype, *, joined: bool) -> DecoderWeights | None:
    """The model's weights in this dtype; None where only the model itself can run a token.

    It can for a plain decoder in eval mode whose layers are what transformers and peft made them: no hook, no other
    kind of layer, nothing quantised. `joined`: layers of one input are copied into one matrix.
    """
    if not is_plain_decoder(base) or base.training or not _unmodified(base):
        return None
    if type(base.model.embed_tokens) is not torch.nn.Embedding:  # PEFT's has an adapter beside its weight
        return None
    blocks = [_block(layer, dtype, joined) for layer in base.model.layers]
    head = linear_weights(base.lm_head)
    if head is None or not all(blocks):
        return None
    fused = FusedLinear([head], dtype=dtype, joined=joined)
    return DecoderWeights(base=base, blocks=[block for block in blocks if block], head=fused, dtype=dtype)


def rope_cos_sin(weights: DecoderWeights, positions: int) -> Tensor:
    """Cosines and sines of every position, (2, positions, D): q * cos + roll(q, D/2) * sin is q rotated."""
    decoder = weights.base.model
    like = decoder.embed_tokens.weight
    ids = torch.arange(positions, device=like.device).unsqueeze(0)
    cos, sin = (table[0] for table in decoder.rotary_emb(like[:1].unsqueeze(0), ids))
    half = sin.shape[-1] // 2
    return torch.stack([cos, torch.cat([-sin[:, :half], sin[:, half:]], dim=-1)])


def block_bytes(base: Any, dtype: torch.dtype) -> int:
    """Bytes of all blocks' weights in this dtype."""
    return sum(int(weight.numel()) for weight in base.model.layers.parameters()) * dtype.itemsize


def _block(layer: Any, dtype: torch.dtype, joined: bool) -> BlockWeights | None:
    attention, mlp = layer.self_attn, layer.mlp

    def fused(*modules: Any) -> FusedLinear | None:
        layers = [weights for weights in map(linear_weights, modules) if weights is not None]
        return FusedLinear(layers, dtype=dtype, joined=joined) if len(layers) == len(modules) else None

    qkv = fused(attention.q_proj, attention.k_proj, attention.v_proj)
    o_proj, gate_up, down_proj = fused(attention.o_proj), fused(mlp.gate_proj, mlp.up_proj), fused(mlp.down_proj)
    if qkv is None or o_proj is None or gate_up is None or down_proj is None:
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
    return BlockWeights(
        attn_norm=layer.input_layernorm.weight.detach(),
        qkv=qkv,
        qk_norm=qk_norm,
        o_proj=o_proj,
        mlp_norm=layer.post_attention_layernorm.weight.detach(),
        gate_up=gate_up,
        down_proj=down_proj,
        scaling=attention.scaling,
        biased_keys=attention.k_proj.bias is not None,
    )


def _unmodified(base: Any) -> bool:
    """True when every part runs the forward of its class, and nothing before or after it."""
    rotary = getattr(base.model, "rotary_emb", None)
    if getattr(rotary, "rope_type", None) not in FIXED_ROPE:
        return False
    return not any(
        _has_output_hook(module) or module._forward_pre_hooks or "forward" in vars(module) or module.training
        for module in base.modules()
    )


def _has_output_hook(module: Any) -> bool:
    """True when something looks at its outputs; what gradient checkpointing leaves behind only asks for gradients."""
    return any(GRADIENT_HOOK not in getattr(hook, "__qualname__", "") for hook in module._forward_hooks.values())
