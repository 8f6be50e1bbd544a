"""A token through a plain decoder in as few operations as it takes: what sampling runs once its prompts are run.

A small model's token is hundreds of products that are over in microseconds; what transformers' modules do between them
takes as long again. Here the weights are read once for a rollout, layers of the same input are one product
(core.models.products), and a prompt's keys and values are not repeated (core.rollout.grid).
Scoring and learning run the model's own modules, some of their operations replaced by others than these, so that the
integrity check compares two different ways through it.

Rows stand side by side, not under each other: a product of few rows is then W x, for which bfloat16's kernels on the
CPU take half to two thirds of the time that they take for x W', the usual way.
Not here: the prompts, which the model itself runs; how a token is drawn (core.rollout.drawing).

Shape suffixes: R rows drawing, N their places, H hidden size, X heads, D size of a head, V vocabulary, E anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding
from transformers import DynamicCache

from core.models.plain import plain_decoder, under_adapter
from core.models.products import Product, weights_of
from core.rollout.grid import Grid, Layer

STEADY = ("default", "linear", "llama3", "yarn")  # rotary embeddings that a position has whatever the length
ASKS = "enable_input_require_grads"
MOST = 2**30  # bytes of weights that are copied to be one matrix, on the CPU; elsewhere none is


@dataclass(frozen=True, kw_only=True, slots=True)
class _Block:
    """One layer's weights."""

    before: Tensor  # of the norm before attention
    qkv: Product
    qk_norm: Tensor | None  # (heads, D, 1), Qwen3's
    out: Product
    between: Tensor  # of the norm before the MLP
    gate_up: Product
    down: Product
    scaling: float


class Lean:
    """The model's blocks and head for one token of every row; no gradients, eval mode."""

    def __init__(self, base: Any, blocks: list[_Block], grid: Grid, head: Product) -> None:
        decoder, config = base.model, base.config
        self._embedding, self._norm = decoder.embed_tokens.weight, decoder.norm.weight
        self._eps, self._act = config.rms_norm_eps, decoder.layers[0].mlp.act_fn
        self._blocks, self._head, self._grid = blocks, head, grid
        self._heads = config.num_attention_heads
        self._dtype = grid.layers[0].keys.dtype
        self._turns = _turns(decoder.rotary_emb, self._embedding, grid.longest + 1)

    def step(self, tokens_R: Tensor, t: int) -> Tensor:
        """The logits that follow the rows' token number `t`: (R,) -> (R, V)."""
        self._grid.make_room(t)
        turn_2DR = self._turns[:, self._grid.positions(t)].transpose(1, 2).contiguous()
        with torch.autocast(tokens_R.device.type, enabled=False):
            x_HR = embedding(tokens_R, self._embedding).t().contiguous()
            for block, layer in zip(self._blocks, self._grid.layers, strict=True):
                x_HR = x_HR + self._attention(block, layer, self._normed(x_HR, block.before), turn_2DR, t)
                gate, up = block.gate_up(self._normed(x_HR, block.between)).chunk(2)
                x_HR = x_HR + block.down(self._act(gate).mul_(up))
            return self._head(self._normed(x_HR, self._norm)).t()

    def keep(self, kept: Tensor) -> None:
        """The rows at these places go on, in this order."""
        self._grid.keep(kept)

    def _normed(self, x_HR: Tensor, weight_H: Tensor) -> Tensor:
        return _unit(x_HR, 0, self._eps).mul_(weight_H.unsqueeze(-1)).to(self._dtype)

    def _attention(self, block: _Block, layer: Layer, x_HR: Tensor, turn_2DR: Tensor, t: int) -> Tensor:
        grid, groups, size = self._grid, layer.keys.shape[1], layer.keys.shape[3]
        y_XDR = block.qkv(x_HR).view(self._heads + 2 * groups, size, -1)
        qk_XDR, v_GDR = y_XDR[:-groups], y_XDR[-groups:]
        if block.qk_norm is not None:
            qk_XDR = _unit(qk_XDR, 1, self._eps).mul_(block.qk_norm)
        turned_XDR = torch.addcmul(qk_XDR * turn_2DR[0], qk_XDR.roll(size // 2, 1), turn_2DR[1]).to(self._dtype)
        q_XDR, k_GDR = turned_XDR[: self._heads], turned_XDR[self._heads :]
        grid.store(layer, k_GDR.permute(2, 0, 1), v_GDR.permute(2, 0, 1), t)
        q_NE = grid.placed(q_XDR.flatten(0, 1).t().contiguous())
        attended_NE = grid.attend(layer, q_NE.view(len(q_NE), self._heads, size), t, block.scaling)
        return block.out(grid.taken(attended_NE).t())


def _unit(x: Tensor, dim: int, eps: float) -> Tensor:
    """x over the root of the mean of its squares along `dim`, found in float32 at least; a tensor of its own."""
    exact = x.to(torch.promote_types(x.dtype, torch.float32), copy=True)
    rate = (exact * exact).mean(dim, keepdim=True).add_(eps).rsqrt_()
    return exact.mul_(rate).to(x.dtype)


def lean(model: Any, cache: DynamicCache, mask_PS: Tensor, k: int, limit: int) -> Lean | None:
    """What runs up to `limit` tokens of k rows of every prompt in the cache; None where only the model itself can.

    It can for a plain decoder in eval mode whose layers are what transformers and peft made them: no hook, no other
    kind of layer, nothing quantised.
    """
    base = under_adapter(model)
    if limit < 1 or not plain_decoder(base) or base.training or not _as_made(base):
        return None
    if cache.get_seq_length() != mask_PS.shape[1]:
        return None
    device, keys = base.device.type, cache.layers[0].keys
    casts = torch.is_autocast_enabled(device)
    dtype = torch.get_autocast_dtype(device) if casts else keys.dtype
    joined = device == "cpu" and _bytes(base, dtype) <= MOST
    if casts and not joined:
        return None
    blocks = [_block(layer, dtype, joined) for layer in base.model.layers]
    head = weights_of(base.lm_head)
    if head is None or not all(blocks):
        return None
    prompts = [(layer.keys.to(dtype), layer.values.to(dtype)) for layer in cache.layers]
    grid = Grid(prompts, mask_PS, k, limit)
    return Lean(base, [block for block in blocks if block], grid, Product([head], dtype=dtype, joined=joined))


def _block(layer: Any, dtype: torch.dtype, joined: bool) -> _Block | None:
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
        ).unsqueeze(-1)
    return _Block(
        before=layer.input_layernorm.weight.detach(),
        qkv=qkv,
        qk_norm=qk_norm,
        out=out,
        between=layer.post_attention_layernorm.weight.detach(),
        gate_up=gate_up,
        down=down,
        scaling=attention.scaling,
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


def _bytes(base: Any, dtype: torch.dtype) -> int:
    return sum(int(weight.numel()) for weight in base.model.layers.parameters()) * dtype.itemsize


def _turns(rotary: Any, like: Tensor, positions: int) -> Tensor:
    """Cosines and sines of every position, (2, positions, D): q * cos + roll(q, D/2) * sin is q turned."""
    ids = torch.arange(positions, device=like.device).unsqueeze(0)
    cos, sin = (one[0] for one in rotary(like[:1].unsqueeze(0), ids))
    half = sin.shape[-1] // 2
    return torch.stack([cos, torch.cat([-sin[:, :half], sin[:, half:]], dim=-1)])
