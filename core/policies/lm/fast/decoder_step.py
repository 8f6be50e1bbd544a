"""A token through a plain decoder in as few operations as it takes: what sampling runs once its prompts are run.

A small model's token is hundreds of products that are over in microseconds; what transformers' modules do between them
takes as long again. Here the weights are read once for a rollout, layers of the same input are one product
(core.policies.lm.fast.products), and a prompt's keys and values are not repeated (core.policies.lm.fast.shared_cache).
Scoring and learning run the model's own modules, some of their operations replaced by others than these, so that the
integrity check compares two different ways through it.

Rows stand side by side, not under each other: a product of few rows is then W x, for which bfloat16's kernels on the
CPU take half to two thirds of the time that they take for x W', the usual way.
Not here: other devices (core.policies.lm.fast.fixed); the prompts, which the model itself runs; how a token is drawn
(core.policies.lm.drawing).

Shape suffixes: R rows drawing, N their places, H hidden size, X heads, D size of a head, V vocabulary, E anything.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding
from transformers import DynamicCache

from core.policies.lm.fast.cuda_graph import Record
from core.policies.lm.fast.decoder_weights import Block, Weights, size_of, turns, weights
from core.policies.lm.fast.fixed import Fixed
from core.policies.lm.fast.plain import plain_decoder, under_adapter
from core.policies.lm.fast.shared_cache import Grid, Layer

SIDE_BY_SIDE = ("cpu",)  # the devices where rows stand so
MOST = 2**30  # bytes of weights that are copied to be one matrix, on the CPU; elsewhere none is


class Lean:
    """The model's blocks and head for one token of every row; no gradients, eval mode."""

    def __init__(self, weights: Weights, grid: Grid) -> None:
        decoder, config = weights.base.model, weights.base.config
        self._embedding, self._norm = decoder.embed_tokens.weight, decoder.norm.weight
        self._eps, self._act = config.rms_norm_eps, decoder.layers[0].mlp.act_fn
        self._weights, self._grid = weights, grid
        self._heads = config.num_attention_heads
        self._turns = turns(weights, grid.longest + 1)

    def step(self, tokens_R: Tensor, t: int) -> Tensor:
        """The logits that follow the rows' token number `t`: (R,) -> (R, V)."""
        self._grid.make_room(t)
        turn_2DR = self._turns[:, self._grid.positions(t)].transpose(1, 2).contiguous()
        with torch.autocast(tokens_R.device.type, enabled=False):
            x_HR = embedding(tokens_R, self._embedding).t().contiguous()
            for block, layer in zip(self._weights.blocks, self._grid.layers, strict=True):
                x_HR = x_HR + self._attention(block, layer, self._normed(x_HR, block.before), turn_2DR, t)
                gate, up = block.gate_up(self._normed(x_HR, block.between)).chunk(2)
                x_HR = x_HR + block.down(self._act(gate).mul_(up))
            return self._weights.head(self._normed(x_HR, self._norm)).t()

    def keep(self, kept: Tensor) -> None:
        """The rows at these places go on, in this order."""
        self._grid.keep(kept)

    def _normed(self, x_HR: Tensor, weight_H: Tensor) -> Tensor:
        return _unit(x_HR, 0, self._eps).mul_(weight_H.unsqueeze(-1)).to(self._weights.dtype)

    def _attention(self, block: Block, layer: Layer, x_HR: Tensor, turn_2DR: Tensor, t: int) -> Tensor:
        grid, groups, size = self._grid, layer.keys.shape[1], layer.keys.shape[3]
        y_XDR = block.qkv(x_HR).view(self._heads + 2 * groups, size, -1)
        qk_XDR, v_GDR = y_XDR[:-groups], y_XDR[-groups:]
        if block.qk_norm is not None:
            qk_XDR = _unit(qk_XDR, 1, self._eps).mul_(block.qk_norm.unsqueeze(-1))
        turned_XDR = torch.addcmul(qk_XDR * turn_2DR[0], qk_XDR.roll(size // 2, 1), turn_2DR[1]).to(self._weights.dtype)
        q_XDR, k_GDR = turned_XDR[: self._heads], turned_XDR[self._heads :]
        grid.store(layer, k_GDR.permute(2, 0, 1), v_GDR.permute(2, 0, 1), t)
        q_NE = grid.placed(q_XDR.flatten(0, 1).t().contiguous())
        attended_NE = grid.attend(layer, q_NE.view(len(q_NE), self._heads, size), block.scaling, t=t)
        return block.out(grid.taken(attended_NE).t())


def _unit(x: Tensor, dim: int, eps: float) -> Tensor:
    """x over the root of the mean of its squares along `dim`, found in float32 at least; a tensor of its own."""
    exact = x.to(torch.promote_types(x.dtype, torch.float32), copy=True)
    rate = (exact * exact).mean(dim, keepdim=True).add_(eps).rsqrt_()
    return exact.mul_(rate).to(x.dtype)


def lean(
    model: Any, cache: DynamicCache, mask_PS: Tensor, k: int, limit: int, record: Record | None = None
) -> Lean | Fixed | None:
    """What runs up to `limit` tokens of k rows of every prompt in the cache; None where only the model itself can.

    `record` is what a step is recorded by where rows do not stand side by side; None: each is run anew.
    """
    base = under_adapter(model)
    if limit < 1 or not plain_decoder(base) or cache.get_seq_length() != mask_PS.shape[1]:
        return None
    device, keys = base.device.type, cache.layers[0].keys
    casts = torch.is_autocast_enabled(device)
    dtype = torch.get_autocast_dtype(device) if casts else keys.dtype
    joined = device == "cpu" and size_of(base, dtype) <= MOST
    if casts and not joined and device == "cpu":
        return None
    if (found := weights(base, dtype, joined=joined)) is None:
        return None
    prompts = [(layer.keys.to(dtype), layer.values.to(dtype)) for layer in cache.layers]
    grid = Grid(prompts, mask_PS, k, limit, centred=found.centred)
    return Lean(found, grid) if device in SIDE_BY_SIDE else Fixed(found, grid, record)
