"""A token through a plain decoder by tensors that stay in place, so that a GPU can replay it.

What decoder_step.py does on the CPU, for devices whose time goes into launching operations. A step is recorded
(cuda_graph.py) and replayed for every token that follows: the tokens and their number are written into two
tensors that it reads, the room for drawn tokens is all read and a mask says which are there, and the places of rows
that have left are run with the others. When the grid is made larger or smaller, the step is recorded anew.

Shape suffixes: R rows drawing, N their places, H hidden size, X heads, D size of a head, C drawn tokens there is room
for, V vocabulary.
"""

from __future__ import annotations

import logging

import torch
from torch import Tensor
from torch.nn.functional import embedding, rms_norm

from core.policies.lm.fast.attention import bias_of
from core.policies.lm.fast.cuda_graph import Record, Run, forget
from core.policies.lm.fast.decoder_weights import Block, Weights, turns
from core.policies.lm.fast.shared_cache import Grid, Layer

FEW = 16  # tokens still to come: to record a step takes as long as to run two or three

_log = logging.getLogger("core.rollout")


class Fixed:
    """The model's blocks and head for one token of every place; no gradients, eval mode."""

    def __init__(self, weights: Weights, grid: Grid, record: Record | None) -> None:
        """`record` is what a step is recorded by; None: each is run anew."""
        decoder, config = weights.base.model, weights.base.config
        self._embedding, self._norm = decoder.embed_tokens.weight, decoder.norm.weight
        self._eps, self._act = config.rms_norm_eps, decoder.layers[0].mlp.act_fn
        self._weights, self._grid, self._record = weights, grid, record
        self._heads = config.num_attention_heads
        self._turns = turns(weights, grid.longest + 1)
        self._shape = -1  # the grid's when the step was made ready
        self._tokens_N = self._t_1 = grid.starts_N  # what a step reads, once it is made ready
        self._replay: Run | None = None  # None: a step is run

    def step(self, tokens_R: Tensor, t: int) -> Tensor:
        """The logits that follow the rows' token number `t`: (R,) -> (R, V); the next step may write over them."""
        grid = self._grid
        grid.make_room(t)
        anew = grid.shape != self._shape
        if anew:
            self._replay = None  # whose memory is given back before another is recorded
            self._shape, self._tokens_N, self._t_1 = grid.shape, grid.starts_N.clone(), grid.starts_N[:1].clone()
        self._tokens_N.copy_(grid.placed(tokens_R))
        self._t_1.fill_(t)
        with torch.autocast(tokens_R.device.type, enabled=False):
            if anew:
                self._replay = self._recorded(grid.limit - t)
            return grid.taken(self._run() if self._replay is None else self._replay())

    def keep(self, kept: Tensor) -> None:
        """The rows at these places go on, in this order."""
        self._grid.keep(kept)

    def _recorded(self, left: int) -> Run | None:
        """What replays a step from here on, `left` tokens at most; None where it is better run."""
        if self._record is None or left < FEW:
            return None
        try:
            return self._record(self._run)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            forget(self._record)
            self._record = None
            why = " ".join(str(error).split())[:200]
            _log.warning("sampling cannot be recorded as a CUDA graph and goes on, slower, without: %s", why)
            return None

    def _run(self) -> Tensor:
        """(N, V): by what stands in the two tensors. Nothing here may depend on a number that changes."""
        grid = self._grid
        turn_2N1D = self._turns[:, grid.starts_N + self._t_1].unsqueeze(2)
        places_C = torch.arange(grid.room, device=self._t_1.device)
        later_C = bias_of(places_C <= self._t_1, self._weights.dtype)
        x_NH = embedding(self._tokens_N, self._embedding)
        for block, layer in zip(self._weights.blocks, grid.layers, strict=True):
            x_NH = x_NH + self._attention(block, layer, self._normed(x_NH, block.before), (turn_2N1D, later_C))
            gate, up = block.gate_up.rows(self._normed(x_NH, block.between)).chunk(2, dim=-1)
            x_NH = x_NH + block.down.rows(self._act(gate).mul_(up))
        return self._weights.head.rows(self._normed(x_NH, self._norm))

    def _normed(self, x: Tensor, weight: Tensor) -> Tensor:
        return rms_norm(x, weight.shape[-1:], weight, self._eps).to(self._weights.dtype)

    def _attention(self, block: Block, layer: Layer, x_NH: Tensor, now: tuple[Tensor, Tensor]) -> Tensor:
        """`now`: what turns the queries and keys, and what is added to the scores of drawn tokens."""
        (turn_2N1D, later_C), groups, size = now, layer.keys.shape[1], layer.keys.shape[3]
        y_NXD = block.qkv.rows(x_NH).view(len(x_NH), self._heads + 2 * groups, size)
        qk_NXD, v_NGD = y_NXD[:, :-groups], y_NXD[:, -groups:]
        if block.qk_norm is not None:
            qk_NXD = rms_norm(qk_NXD, (size,), None, self._eps) * block.qk_norm
        turned_NXD = torch.addcmul(qk_NXD * turn_2N1D[0], qk_NXD.roll(size // 2, -1), turn_2N1D[1])
        turned_NXD = turned_NXD.to(self._weights.dtype)
        k_NGD = layer.less_about(turned_NXD[:, self._heads :])
        for table, new in ((layer.drawn_keys, k_NGD), (layer.drawn_values, v_NGD)):
            table.index_copy_(2, self._t_1, new.unsqueeze(2))
        q_NXD = turned_NXD[:, : self._heads].contiguous()
        return block.out.rows(self._grid.attend(layer, q_NXD, block.scaling, later_C=later_C))
