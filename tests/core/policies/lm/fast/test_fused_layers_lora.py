"""A LoRA layer as one product says what PEFT's forward says, in value and gradient, and is PEFT's again afterwards."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor

from core.policies.lm.fast.decoder_weights import FusedLinear, linear_weights
from core.policies.lm.fast.fused_layers import is_plain_lora, one_product

IN, HIDDEN, OUT = 6, 9, 7
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")  # peft asks transformers by an old name


class Two(torch.nn.Module):
    """Two linear layers, the first with a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(IN, HIDDEN)
        self.second = torch.nn.Linear(HIDDEN, OUT, bias=False)

    @property
    def device(self) -> torch.device:
        """As a transformers model tells it."""
        return self.second.weight.device

    def forward(self, x: Tensor) -> Tensor:
        """(.., I) -> (.., O)."""
        y: Tensor = self.second(torch.tanh(self.first(x)))
        return y


def adapted(dtype: torch.dtype = torch.float64, dropout: float = 0.0, **how: Any) -> Any:
    torch.manual_seed(0)
    config = LoraConfig(r=3, lora_alpha=12, lora_dropout=dropout, target_modules=["first", "second"], **how)
    model = get_peft_model(Two().to(dtype), config)
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            parameter.data = torch.randn_like(parameter)
    return model


def found(model: Any, x: Tensor) -> list[Tensor]:
    """The output, and the gradients of the input and of every adapter weight."""
    learned = [p for p in model.parameters() if p.requires_grad]
    out = model(x)
    weights = torch.linspace(-1, 1, out.numel()).view(out.shape)
    return [out.detach(), *torch.autograd.grad((out * weights).sum(), [x, *learned])]


def inputs(dtype: torch.dtype) -> Tensor:
    return torch.randn(4, 5, IN, generator=torch.Generator().manual_seed(1), dtype=dtype).requires_grad_()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_it_is_pefts_own(dtype: torch.dtype) -> None:
    model, x = adapted(dtype), inputs(dtype)
    expected = found(model, x)
    with one_product(model)():
        assert "forward" in vars(model.base_model.model.first)
        quick = found(model, x)
    assert "forward" not in vars(model.base_model.model.first)
    close = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 5e-2}[dtype]
    for one, other in zip(quick, expected, strict=True):
        assert one.dtype == other.dtype
        assert float((one - other).norm() / other.norm()) < close


def test_an_adapter_of_float32_on_bfloat16_has_gradients_of_float32() -> None:
    model, x = adapted(torch.bfloat16), inputs(torch.bfloat16)
    learned = [p for p in model.parameters() if p.requires_grad]
    assert {p.dtype for p in learned} == {torch.float32}  # as PEFT makes it
    exact = adapted(torch.float32)
    exact.load_state_dict(model.state_dict())
    expected = found(exact, x.detach().float().requires_grad_())
    with one_product(model)():
        quick = found(model, x)
    assert [one.dtype for one in quick[2:]] == [torch.float32] * len(learned)
    for one, other in zip(quick, expected, strict=True):
        assert float((one.float() - other).norm() / other.norm()) < 4e-2


def test_backward_may_come_after_it() -> None:
    model, x = adapted(), inputs(torch.float64)
    expected = found(model, x)
    with one_product(model)():
        out = model(x)
    weights = torch.linspace(-1, 1, out.numel()).view(out.shape)
    gradient = torch.autograd.grad((out * weights).sum(), [x, *(p for p in model.parameters() if p.requires_grad)])
    for one, other in zip(gradient, expected[1:], strict=True):
        torch.testing.assert_close(one, other)


def taken(model: Any) -> list[bool]:
    with one_product(model)():
        return ["forward" in vars(layer) for layer in (model.base_model.model.first, model.base_model.model.second)]


def test_what_computes_otherwise_is_left_alone() -> None:
    model = adapted(dropout=0.2).train()
    assert taken(model) == [False, False]
    assert taken(model.eval()) == [True, True]  # there is no dropout then
    with model.disable_adapter():
        assert taken(model) == [False, False]
    model.merge_adapter()
    assert taken(model) == [False, False]
    assert taken(adapted(use_dora=True)) == [False, False]
    with pytest.warns(match="lora_bias"):  # the second layer has none that it could be merged into
        assert taken(adapted(lora_bias=True)) == [False, False]
    trained = adapted()
    trained.base_model.model.first.base_layer.weight.requires_grad_()
    assert taken(trained) == [False, True]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert taken(adapted()) == [False, False]
    assert not is_plain_lora(torch.nn.Linear(2, 2))


@pytest.mark.parametrize("joined", [True, False])
@pytest.mark.parametrize("targets", [["first"], ["other"], ["first", "other"], ["unused"]])
def test_layers_of_one_input_are_one_product(targets: list[str], joined: bool) -> None:
    torch.manual_seed(0)
    layers = torch.nn.ModuleDict(
        {
            "first": torch.nn.Linear(IN, HIDDEN),
            "other": torch.nn.Linear(IN, OUT, bias=False),
            "unused": torch.nn.Linear(IN, OUT),
        }
    ).double()
    model = get_peft_model(layers, LoraConfig(r=2, lora_alpha=8, target_modules=targets))
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            parameter.data = torch.randn_like(parameter)
    base, x = model.base_model.model, inputs(torch.float64).detach()[0]
    both = [linear_weights(base[name]) for name in ("first", "other")]
    product = FusedLinear([one for one in both if one is not None], dtype=torch.float64, joined=joined)
    expected = torch.cat([base["first"](x), base["other"](x)], dim=-1)
    torch.testing.assert_close(product.columns(x.t()).t(), expected)
    with model.disable_adapter():
        plain = [linear_weights(base[name]) for name in ("first", "other")]
        without = FusedLinear([one for one in plain if one is not None], dtype=torch.float64, joined=joined)
        torch.testing.assert_close(without.columns(x.t()).t(), torch.cat([base["first"](x), base["other"](x)], dim=-1))


def test_a_layer_that_computes_otherwise_has_no_weights_to_take() -> None:
    assert linear_weights(torch.nn.Identity()) is None
    assert linear_weights(torch.nn.Bilinear(2, 2, 2)) is None
    dora = adapted(use_dora=True).base_model.model
    assert linear_weights(dora.first) is None
    merged = adapted()
    merged.merge_adapter()
    (weights,) = [linear_weights(merged.base_model.model.first)]
    assert weights is not None
    assert not weights.adapters
    assert torch.equal(weights.weight_OI, merged.base_model.model.first.base_layer.weight)
