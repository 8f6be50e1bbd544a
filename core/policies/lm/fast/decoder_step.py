"""Saving `lean_steps`: a drawn token runs through a plain decoder in as few operations as it takes, in two layouts.

A small model's token is hundreds of products that are over in microseconds; what transformers' modules do between them
takes as long again. Here the weights are read once for a rollout, layers of the same input are one product
(decoder_weights.py), and a prompt's keys and values are not repeated (kv_cache.py). Equal up to rounding.
Scoring and learning run the model's own modules, some of their operations replaced by others than these, so that the
integrity check compares two different ways through it.

The walk over the blocks stands once, in DecoderStep. What differs by layout is which dimension holds what:
  ColumnStep    on the CPU: rows stand side by side. A product of few rows is then W x, for which bfloat16's kernels
                take half to two thirds of the time that they take for x W', the usual way.
  RecordedStep  elsewhere: rows stand under each other, in tensors that stay in place, so that a GPU can replay a step.
A token of a small batch is a thousand kernels of some microseconds each; the CPU takes longer to launch one than the
GPU to run it. So a step is recorded once, as a CUDA graph, and launched as a whole. Only what it launches is recorded,
with the addresses it is launched with: whatever Python does in it, and whatever number it hands to an operation, stays
as it was. So it may read nothing but tensors that stand where they are, and may not ask the GPU for anything.

Not here: the prompts, which the model itself runs; how a token is drawn (core.policies.lm.decoding).

Shape suffixes: R rows drawing, N their places, H hidden size, X heads of queries, keys and values, G key/value heads,
D size of a head, C drawn tokens there is room for, V vocabulary. Without suffix: in either layout.
"""

from __future__ import annotations

import logging
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding, rms_norm
from transformers import DynamicCache

from core.policies.lm.fast.attention import mask_to_bias
from core.policies.lm.fast.decoder_weights import (
    BlockWeights,
    DecoderWeights,
    FusedLinear,
    block_bytes,
    is_plain_decoder,
    read_weights,
    rope_cos_sin,
    unwrap_adapter,
)
from core.policies.lm.fast.kv_cache import LayerCache, SharedCache

COLUMN_DEVICES = ("cpu",)  # where rows stand side by side
MAX_JOINED_BYTES = 2**30  # of weights that are copied to be one matrix, on the CPU; elsewhere none is
MIN_RECORDED = 16  # tokens still to come: to record a step takes as long as to run two or three

_log = logging.getLogger("core.policies")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Token:
    """What attention needs of a token that is run: its position's cosines and sines, and what it sees of drawn tokens.

    That is those up to its number `t`, or all there is room for with `bias_C` added to their scores.
    """

    cos: Tensor
    sin: Tensor
    t: int | None = None
    bias_C: Tensor | None = None


class DecoderStep(ABC):
    """A plain decoder's blocks and head for one token of every row; no gradients, eval mode."""

    features_dim: int  # where the features are: of (features, rows), or of (rows, features)
    heads_dim: int  # and the heads, of what `_by_heads` gives
    size_dim: int  # and the D numbers of a head
    _linear: Callable[[FusedLinear, Tensor], Tensor]  # a product in this layout

    def __init__(self, weights: DecoderWeights, cache: SharedCache) -> None:
        decoder, config = weights.base.model, weights.base.config
        self._embedding, self._final_norm = decoder.embed_tokens.weight, decoder.norm.weight
        self._eps, self._act = config.rms_norm_eps, decoder.layers[0].mlp.act_fn
        self._weights, self._cache = weights, cache
        self._query_heads = config.num_attention_heads
        self._cos_sin = rope_cos_sin(weights, cache.longest + 1)

    @abstractmethod
    def step(self, tokens_R: Tensor, t: int) -> Tensor:
        """The logits that follow the rows' token number `t`: (R,) -> (R, V)."""

    def keep(self, kept: Tensor) -> None:
        """The rows at these places go on, in this order."""
        self._cache.keep(kept)

    def _logits(self, x: Tensor, token: _Token) -> Tensor:
        """Embedded tokens through all blocks and the head."""
        for block, layer in zip(self._weights.blocks, self._cache.layers, strict=True):
            x = x + self._attention(block, layer, self._norm(x, block.attn_norm), token)
            gate_up = self._linear(block.gate_up, self._norm(x, block.mlp_norm))
            gate, up = gate_up.chunk(2, dim=self.features_dim)
            x = x + self._linear(block.down_proj, self._act(gate).mul_(up))
        return self._linear(self._weights.head, self._norm(x, self._final_norm))

    def _attention(self, block: BlockWeights, layer: LayerCache, x: Tensor, token: _Token) -> Tensor:
        """What attention adds; the token's keys and values are in the cache afterwards."""
        heads, groups, size = self._query_heads, layer.keys.shape[1], layer.keys.shape[3]
        qkv = self._by_heads(self._linear(block.qkv, x), heads + 2 * groups, size)
        qk, v = qkv.narrow(self.heads_dim, 0, heads + groups), qkv.narrow(self.heads_dim, heads + groups, groups)
        if block.qk_norm is not None:
            qk = self._head_norm(qk, block.qk_norm)
        rotated = torch.addcmul(qk * token.cos, qk.roll(size // 2, self.size_dim), token.sin).to(self._weights.dtype)
        q, k = rotated.narrow(self.heads_dim, 0, heads), rotated.narrow(self.heads_dim, heads, groups)
        attended = self._attend(layer, (q, k, v), block.scaling, token)
        return self._linear(block.o_proj, attended)

    @abstractmethod
    def _norm(self, x: Tensor, weight_H: Tensor) -> Tensor:
        """RMSNorm over the features, in the dtype of the products."""

    @abstractmethod
    def _head_norm(self, qk: Tensor, weight_XD: Tensor) -> Tensor:
        """RMSNorm of each query and key over its own D numbers."""

    @abstractmethod
    def _by_heads(self, x: Tensor, heads: int, size: int) -> Tensor:
        """The features as heads of this size."""

    @abstractmethod
    def _attend(self, layer: LayerCache, qkv: tuple[Tensor, Tensor, Tensor], scaling: float, token: _Token) -> Tensor:
        """Keys and values stored, queries answered; heads are features again."""


class ColumnStep(DecoderStep):
    """Rows side by side: (H, R) of rows that draw, (X, D, R) by heads. A norm sums over the first dimension."""

    features_dim, heads_dim, size_dim = 0, 0, 1
    _linear = staticmethod(FusedLinear.columns)

    def step(self, tokens_R: Tensor, t: int) -> Tensor:
        """The logits that follow the rows' token number `t`: (R,) -> (R, V)."""
        self._cache.make_room(t)
        cos_DR, sin_DR = self._cos_sin[:, self._cache.positions(t)].transpose(1, 2).contiguous().unbind()
        with torch.autocast(tokens_R.device.type, enabled=False):
            x_HR = embedding(tokens_R, self._embedding).t().contiguous()
            return self._logits(x_HR, _Token(cos=cos_DR, sin=sin_DR, t=t)).t()

    def _norm(self, x_HR: Tensor, weight_H: Tensor) -> Tensor:
        return _unit_rms(x_HR, 0, self._eps).mul_(weight_H.unsqueeze(-1)).to(self._weights.dtype)

    def _head_norm(self, qk_XDR: Tensor, weight_XD: Tensor) -> Tensor:
        return _unit_rms(qk_XDR, 1, self._eps).mul_(weight_XD.unsqueeze(-1))

    def _by_heads(self, x_HR: Tensor, heads: int, size: int) -> Tensor:
        return x_HR.view(heads, size, -1)

    def _attend(self, layer: LayerCache, qkv: tuple[Tensor, Tensor, Tensor], scaling: float, token: _Token) -> Tensor:
        (q_XDR, k_GDR, v_GDR), cache = qkv, self._cache
        assert token.t is not None
        cache.store(layer, k_GDR.permute(2, 0, 1), v_GDR.permute(2, 0, 1), token.t)
        q_NH = cache.to_places(q_XDR.flatten(0, 1).t().contiguous())
        attended_NH = cache.attend(layer, q_NH.view(len(q_NH), *q_XDR.shape[:2]), scaling, t=token.t)
        return cache.from_places(attended_NH).t()


class RecordedStep(DecoderStep):
    """Saving `recorded_steps`: a step for devices whose time goes into launching operations. The same numbers.

    It is recorded (`record_cuda_graph`) and replayed for every token that follows: the tokens and their number are
    written into two tensors that it reads, the room for drawn tokens is all read and a bias says which are there, and
    the places of rows that have left are run with the others: (N, H), (N, X, D) by heads. When the cache is made larger
    or smaller, the step is recorded anew.
    """

    features_dim, heads_dim, size_dim = -1, 1, 2
    _linear = staticmethod(FusedLinear.rows)

    def __init__(self, weights: DecoderWeights, cache: SharedCache, record: Record | None) -> None:
        """`record` is what a step is recorded by; None: each is run anew."""
        super().__init__(weights, cache)
        self._record = record
        self._version = -1  # the cache's when the step was made ready
        self._tokens_N = self._t_1 = cache.starts_N  # what a step reads, once it is made ready
        self._replay: Launch | None = None  # None: a step is run

    def step(self, tokens_R: Tensor, t: int) -> Tensor:
        """The logits that follow the rows' token number `t`: (R,) -> (R, V); the next step may write over them."""
        cache = self._cache
        cache.make_room(t)
        anew = cache.version != self._version
        if anew:
            self._replay = None  # whose memory is given back before another is recorded
            self._version = cache.version
            self._tokens_N, self._t_1 = cache.starts_N.clone(), cache.starts_N[:1].clone()
        self._tokens_N.copy_(cache.to_places(tokens_R))
        self._t_1.fill_(t)
        with torch.autocast(tokens_R.device.type, enabled=False):
            if anew:
                self._replay = self._recorded(cache.limit - t)
            return cache.from_places(self._run() if self._replay is None else self._replay())

    def _recorded(self, left: int) -> Launch | None:
        """What replays a step from here on, `left` tokens at most; None where it is better run."""
        if self._record is None or left < MIN_RECORDED:
            return None
        try:
            return self._record(self._run)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            stop_recording(self._record)
            self._record = None
            why = " ".join(str(error).split())[:200]
            _log.warning("sampling cannot be recorded as a CUDA graph and goes on, slower, without: %s", why)
            return None

    def _run(self) -> Tensor:
        """(N, V): by what stands in the two tensors. Nothing here may depend on a number that changes."""
        cos_N1D, sin_N1D = self._cos_sin[:, self._cache.starts_N + self._t_1].unsqueeze(2).unbind()
        places_C = torch.arange(self._cache.room, device=self._t_1.device)
        bias_C = mask_to_bias(places_C <= self._t_1, self._weights.dtype)
        token = _Token(cos=cos_N1D, sin=sin_N1D, bias_C=bias_C)
        return self._logits(embedding(self._tokens_N, self._embedding), token)

    def _norm(self, x_NH: Tensor, weight_H: Tensor) -> Tensor:
        return rms_norm(x_NH, weight_H.shape[-1:], weight_H, self._eps).to(self._weights.dtype)

    def _head_norm(self, qk_NXD: Tensor, weight_XD: Tensor) -> Tensor:
        return rms_norm(qk_NXD, qk_NXD.shape[-1:], None, self._eps) * weight_XD

    def _by_heads(self, x_NH: Tensor, heads: int, size: int) -> Tensor:
        return x_NH.view(len(x_NH), heads, size)

    def _attend(self, layer: LayerCache, qkv: tuple[Tensor, Tensor, Tensor], scaling: float, token: _Token) -> Tensor:
        q_NXD, k_NGD, v_NGD = qkv
        layer.store_at(k_NGD, v_NGD, self._t_1)
        return self._cache.attend(layer, q_NXD.contiguous(), scaling, bias_C=token.bias_C)


def _unit_rms(x: Tensor, dim: int, eps: float) -> Tensor:
    """x over the root of the mean of its squares along `dim`, found in float32 at least; a tensor of its own."""
    exact = x.to(torch.promote_types(x.dtype, torch.float32), copy=True)
    rate = (exact * exact).mean(dim, keepdim=True).add_(eps).rsqrt_()
    return exact.mul_(rate).to(x.dtype)


def decoder_step(
    model: Any, cache: DynamicCache, mask_PS: Tensor, k: int, limit: int, record: Record | None = None
) -> DecoderStep | None:
    """What runs up to `limit` tokens of k rows of every prompt in the cache; None where only the model itself can.

    `record` is what a step is recorded by where rows do not stand side by side; None: each is run anew.
    """
    base = unwrap_adapter(model)
    if limit < 1 or not is_plain_decoder(base) or cache.get_seq_length() != mask_PS.shape[1]:
        return None
    device, keys = base.device.type, cache.layers[0].keys
    casts = torch.is_autocast_enabled(device)
    dtype = torch.get_autocast_dtype(device) if casts else keys.dtype
    joined = device == "cpu" and block_bytes(base, dtype) <= MAX_JOINED_BYTES
    if casts and not joined and device == "cpu":
        return None
    if (weights := read_weights(base, dtype, joined=joined)) is None:
        return None
    prompts = [(layer.keys.to(dtype), layer.values.to(dtype)) for layer in cache.layers]
    shared = SharedCache(prompts, mask_PS, k, limit, centre_keys=weights.centre_keys)
    return ColumnStep(weights, shared) if device in COLUMN_DEVICES else RecordedStep(weights, shared, record)


Launch = Callable[[], Tensor]
Record = Callable[[Launch], Launch]


def record_cuda_graph(run: Launch) -> Launch:
    """What replays `run` and gives the tensor that it gave, filled anew. Raises RuntimeError where CUDA cannot."""
    with suppress(torch.OutOfMemoryError):
        return _recorded(run)
    # A recording takes fresh memory only, none that was kept; and out here nothing holds on to the one that failed.
    torch.cuda.empty_cache()
    return _recorded(run)


def stop_recording(record: Record) -> None:
    """Do not record again in this process: it has failed, and each failure may cost memory for good."""
    for device in [device for device, recorder in RECORDERS.items() if recorder is record]:
        del RECORDERS[device]


def _recorded(run: Launch) -> Launch:
    stream, current = torch.cuda.Stream(), torch.cuda.current_stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(current)
    try:
        with torch.cuda.stream(stream):
            with _never_waiting():
                run()  # what libraries set up when they are first used must not be recorded
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            # Other threads, NCCL's among them, may ask CUDA for what a recording thread may not.
            graph.capture_begin(capture_error_mode="thread_local")
            result: Tensor | None = None
            try:
                result = run()
            finally:
                # What was begun must be ended, also where it cannot be ended well: then `run` has said why.
                with nullcontext() if result is not None else suppress(RuntimeError):
                    graph.capture_end()
    finally:
        current.wait_stream(stream)
    return partial(_replay, graph, result)


def _replay(graph: torch.cuda.CUDAGraph, result: Tensor) -> Tensor:
    graph.replay()
    return result


@contextmanager
def _never_waiting() -> Iterator[None]:
    """What would make the CPU wait raises RuntimeError here, and not in a recording, which it would spoil."""
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Synchronization debug mode")  # that it is a prototype
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


RECORDERS: dict[str, Record] = {"cuda": record_cuda_graph}
