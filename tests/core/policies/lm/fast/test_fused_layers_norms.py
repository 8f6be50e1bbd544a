"""The norm as one operation says what transformers' own says, in value and in both gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm

from core.policies.lm.fast.fused_layers import fused_norms
from tests.fakes import small_llama

H = 12


def norm_of(kind: Any, dtype: torch.dtype) -> Any:
    norm = kind(H, eps=1e-3).to(dtype)
    norm.weight.data = torch.linspace(0.5, 2, H, dtype=dtype)
    return torch.nn.Sequential(norm)


def found(model: Any, x: Tensor) -> list[Tensor]:
    out = model(x)
    weights = torch.linspace(-1, 2, out.numel(), dtype=out.dtype).view(out.shape)
    return [out.detach(), *torch.autograd.grad((out * weights).sum(), [x, model[0].weight])]


@pytest.mark.parametrize("kind", [LlamaRMSNorm, Qwen3RMSNorm])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_it_is_transformers_own(kind: Any, dtype: torch.dtype) -> None:
    model = norm_of(kind, dtype)
    x = (0.3 * torch.randn(3, 5, H, generator=torch.Generator().manual_seed(0))).to(dtype).requires_grad_()
    expected = found(model, x)
    with fused_norms(model)():
        assert "forward" in vars(model[0])
        quick = found(model, x)
    assert "forward" not in vars(model[0])
    for one, other in zip(quick, expected, strict=True):
        assert one.dtype == other.dtype
        assert float((one - other).norm() / other.norm()) < {torch.float32: 1e-6, torch.bfloat16: 1e-2}[dtype]


def test_by_hand() -> None:
    # (3, 4): mean of squares 12.5. Without eps the norm is blind to length: no gradient along x.
    model = torch.nn.Sequential(LlamaRMSNorm(2, eps=0.0))
    x = torch.tensor([[3.0, 4.0]], requires_grad=True)
    with fused_norms(model)():
        out = model(x)
        (gradient,) = torch.autograd.grad(out[0, 0], x)
    assert out[0].tolist() == pytest.approx([3 / 12.5**0.5, 4 / 12.5**0.5])
    assert gradient[0].tolist() == pytest.approx([16 / 25 / 12.5**0.5, -12 / 25 / 12.5**0.5])


def test_other_dtypes_than_the_weights_and_other_norms_are_left_alone() -> None:
    model = norm_of(LlamaRMSNorm, torch.float32)
    x = torch.randn(2, H, dtype=torch.float64).requires_grad_()
    expected = found(model, x)
    with fused_norms(model)():
        for one, other in zip(found(model, x), expected, strict=True):
            assert torch.equal(one, other)
    other = torch.nn.Sequential(torch.nn.RMSNorm(H))
    with fused_norms(other)():
        assert "forward" not in vars(other[0])


def test_every_norm_of_a_model_is_taken() -> None:
    model = small_llama()
    with fused_norms(model)():
        taken = [name for name, module in model.named_modules() if "forward" in vars(module)]
    assert len(taken) == 2 * model.config.num_hidden_layers + 1
