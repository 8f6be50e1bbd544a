"""RMSNorm as one differentiable operation: forward and backward of transformers' own, with less kept and fewer passes.

Autograd goes back through it one elementary operation at a time, each a pass over all tokens in float32.
Not here: sampling, which needs no gradient (core.policies.lm.fast.decoder_step).

Shape suffixes: H hidden size.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from core.policies.lm.fast.fused_layers import Way, instead

NORMS = ("LlamaRMSNorm", "Qwen2RMSNorm", "Qwen3RMSNorm")  # read in the tested transformers: the same three lines


def fused_norms(model: Any) -> Way:
    """The model with this in the place of its norms' own forward."""
    return instead([module for module in model.modules() if _takes(module)], _forward)


def _takes(module: Any) -> bool:
    kind = type(module)
    ours = kind.__name__ in NORMS and kind.__module__.startswith("transformers.models.")
    return ours and "forward" not in vars(module)


def _forward(norm: Any, x: Tensor) -> Tensor:
    if x.dtype != norm.weight.dtype:  # the product is then of another dtype than either
        plain: Tensor = type(norm).forward(norm, x)
        return plain
    found: Tensor = _Norm.apply(x, norm.weight, norm.variance_epsilon)  # type: ignore[no-untyped-call]
    return found


class _Norm(torch.autograd.Function):
    """y = w * x / sqrt(mean(x^2) + eps): (.., H), (H,), eps -> (.., H)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight_H: Tensor, eps: float) -> Tensor:
        exact = x.to(torch.float32, copy=True)
        length = torch.linalg.vector_norm(exact, dim=-1, keepdim=True)
        rate = length.square_().div_(x.shape[-1]).add_(eps).rsqrt_()
        ctx.save_for_backward(x, rate, weight_H)
        return exact.mul_(rate).to(x.dtype).mul_(weight_H)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        # With n = x * rate: dx = rate * (w dy - n * mean(n * w dy)).
        x, rate, weight_H = ctx.saved_tensors
        exact, pull = x.to(torch.float32), grad.to(torch.float32, copy=True)
        of_weight = None
        if ctx.needs_input_grad[1]:
            of_weight = (pull * (exact * rate)).flatten(0, -2).sum(0).to(weight_H.dtype)
        if not ctx.needs_input_grad[0]:
            return None, of_weight, None
        pull.mul_(weight_H)
        along = torch.linalg.vecdot(pull, exact).unsqueeze(-1).mul_(rate.square()).div_(-x.shape[-1])
        return pull.addcmul_(exact, along).mul_(rate).to(x.dtype), of_weight, None
