"""A LoRA layer as one differentiable product, in the dtype of the weights it stands on.

PEFT runs an adapter of float32 on weights of bfloat16 by casting what comes in and what goes out, of every token and of
its gradient, and by five passes over them besides. Here the adapter's two small matrices are cast instead; the adapter
itself, its gradient and its optimiser stay in float32, as under autocast.
Not here: sampling, where weights stand still (products.py); what may be folded (core.models.adapters).

Shape suffixes: M tokens, I inputs, O outputs, A rank.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from core.policies.lm.fast.fused_layers import Way, instead


def plain_lora(module: Any) -> bool:
    """Whether it is PEFT's own LoRA on an ordinary linear layer, without a variant or a bias of its own."""
    if not hasattr(module, "lora_A"):
        return False
    from peft.tuners.lora import Linear  # a second's import: who has such a layer has paid it

    ours = type(module) is Linear and type(module.get_base_layer()) is torch.nn.Linear
    return ours and not module.lora_variant and not any(module.lora_bias.values())


def one_product(model: Any) -> Way:
    """The model with this in the place of PEFT's forward, where a layer's adapter is on and alone, without dropout."""
    casts = torch.is_autocast_enabled(model.device.type)
    return instead([] if casts else [module for module in model.modules() if _takes(module)], _forward)


def _takes(module: Any) -> bool:
    if not plain_lora(module) or module.disable_adapters or module.merged or len(module.active_adapters) != 1:
        return False
    (name,) = module.active_adapters
    if name not in module.lora_A or module.get_base_layer().weight.requires_grad:
        return False
    dropout = module.lora_dropout[name]
    return not (module.training and getattr(dropout, "p", 0.0)) and "forward" not in vars(module)


def _forward(layer: Any, x: Tensor) -> Tensor:
    (name,) = layer.active_adapters
    base = layer.get_base_layer()
    down, up = layer.lora_A[name].weight, layer.lora_B[name].weight
    found: Tensor = _Lora.apply(x, (base.weight, base.bias), down, up, layer.scaling[name])  # type: ignore[no-untyped-call]
    return found


class _Lora(torch.autograd.Function):
    """y = x W' + b + s (x D') U': (.., I), frozen (O, I) and (O,) or None, (A, I), (O, A), s -> (.., O)."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, frozen: tuple[Tensor, Tensor | None], down_AI: Tensor, up_OA: Tensor, scaling: float
    ) -> Tensor:
        weight_OI, bias_O = frozen
        x_MI = x.reshape(-1, x.shape[-1])
        own_AI, own_OA = down_AI.to(weight_OI.dtype), (up_OA * scaling).to(weight_OI.dtype)
        low_MA = linear(x_MI, own_AI)
        y_MO = linear(x_MI, weight_OI, bias_O).addmm_(low_MA, own_OA.t())
        ctx.save_for_backward(x_MI, low_MA, weight_OI, own_AI, own_OA)
        ctx.scaling, ctx.dtypes = scaling, (down_AI.dtype, up_OA.dtype)
        return y_MO.view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x_MI, low_MA, weight_OI, own_AI, own_OA = ctx.saved_tensors
        grad_MO = grad.reshape(-1, grad.shape[-1])
        low_grad_MA = grad_MO @ own_OA
        down = (low_grad_MA.t() @ x_MI).to(ctx.dtypes[0])
        up = (grad_MO.t() @ low_MA).to(ctx.dtypes[1]).mul_(ctx.scaling)
        if not ctx.needs_input_grad[0]:
            return None, None, down, up, None
        x_grad = (grad_MO @ weight_OI).addmm_(low_grad_MA, own_AI)
        return x_grad.view(*grad.shape[:-1], -1), None, down, up, None
