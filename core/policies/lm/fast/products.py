"""Linear layers of one input as one product, for a model whose weights stand still while it is run again and again.

Rows stand side by side, (I, R), or under each other, (R, I): see decoder_step.py and fixed.py.
Not here: which model is run so (decoder_step.py); training, where weights move and gradients are wanted.

Shape suffixes: R rows, I inputs, O outputs of all layers under each other, A ranks of their adapters likewise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from core.policies.lm.fast.lora import plain_lora


@dataclass(frozen=True, kw_only=True, slots=True)
class Weights:
    """What one linear layer computes with: y = x W' + b + (x D') U', the last for each adapter that is on."""

    weight_OI: Tensor
    bias_O: Tensor | None
    adapters: Sequence[tuple[Tensor, Tensor]]  # (A, I) down and (O, A) up, the scaling in it

    def to(self, dtype: torch.dtype) -> Weights:
        """These in another dtype; what has it already is not copied."""
        return Weights(
            weight_OI=self.weight_OI.to(dtype),
            bias_O=None if self.bias_O is None else self.bias_O.to(dtype),
            adapters=[(down.to(dtype), up.to(dtype)) for down, up in self.adapters],
        )


def weights_of(module: Any) -> Weights | None:
    """A plain linear layer's, or those of a plain LoRA layer on one; None of any other, which computes differently."""
    if type(module) is torch.nn.Linear:
        return Weights(weight_OI=module.weight.detach(), bias_O=_detached(module.bias), adapters=())
    if not plain_lora(module):
        return None
    base = module.get_base_layer()
    names = [] if module.disable_adapters or module.merged else module.active_adapters
    adapters = [
        (module.lora_A[name].weight.detach(), module.lora_B[name].weight.detach() * module.scaling[name])
        for name in names
        if name in module.lora_A
    ]
    return Weights(weight_OI=base.weight.detach(), bias_O=_detached(base.bias), adapters=adapters)


class Product:
    """Layers of the same input, their outputs under each other: (I, R) -> (O, R), or (R, I) -> (R, O).

    All adapters are one product down and one up. `joined` copies the weights into one matrix too, the adapters' first
    factors under them. Else of the weights nothing is copied but what is not of this dtype.
    """

    def __init__(self, layers: Sequence[Weights], *, dtype: torch.dtype, joined: bool) -> None:
        layers = [layer.to(dtype) for layer in layers]
        downs = [down for layer in layers for down, _ in layer.adapters]
        self._out = sum(len(layer.weight_OI) for layer in layers)
        # Each adapter moves the outputs of its own layer only.
        self._up_OA = torch.block_diag(*map(_ups, layers)) if downs else None  # type: ignore[no-untyped-call]
        self._down_AI = torch.cat(downs) if downs and not joined else None
        self._matrices = _joined(layers, downs) if joined else [(layer.weight_OI, layer.bias_O) for layer in layers]

    def __call__(self, x_IR: Tensor) -> Tensor:
        """(O, R), in the product's dtype; no gradients."""
        found = [_affine(weight, x_IR, bias) for weight, bias in self._matrices]
        y_OR = found[0] if len(found) == 1 else torch.cat(found)
        if self._up_OA is None:
            return y_OR
        low_AR = y_OR[self._out :] if self._down_AI is None else self._down_AI @ x_IR
        return y_OR[: self._out].addmm_(self._up_OA, low_AR)

    def rows(self, x_RI: Tensor) -> Tensor:
        """(R, O), the same for rows under each other."""
        found = [linear(x_RI, weight, bias) for weight, bias in self._matrices]
        y_RO = found[0] if len(found) == 1 else torch.cat(found, dim=-1)
        if self._up_OA is None:
            return y_RO
        low_RA = y_RO[:, self._out :] if self._down_AI is None else linear(x_RI, self._down_AI)
        return y_RO[:, : self._out].addmm_(low_RA, self._up_OA.t())


def _joined(layers: Sequence[Weights], downs: Sequence[Tensor]) -> list[tuple[Tensor, Tensor | None]]:
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


def _ups(layer: Weights) -> Tensor:
    """The second factors of a layer's adapters side by side, (O, A); without any, A is 0."""
    empty = layer.weight_OI.new_zeros(len(layer.weight_OI), 0)
    return torch.cat([empty, *(up for _, up in layer.adapters)], dim=-1)


def _detached(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.detach()
