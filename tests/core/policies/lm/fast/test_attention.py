"""Attention by plain products says what torch's own says, in value and gradient, and leaves the model as it was."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from core.policies.lm.fast import attention
from core.policies.lm.fast.attention import GROUPED_HEADS, attend_grouped, grouped_heads
from tests.fakes import small_qwen2

R, HEADS, GROUPS, D = 3, 6, 2, 8
MODULE = SimpleNamespace(num_key_value_groups=HEADS // GROUPS, is_causal=True)


def tensors(width: int, seen: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    torch.manual_seed(0)
    shapes = [(R, HEADS, width, D), (R, GROUPS, seen, D), (R, GROUPS, seen, D)]
    return [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes]


def padded(width: int, seen: int) -> Tensor:
    """Row n does not see its first n keys; each query sees what is before it."""
    causal = torch.ones(width, seen, dtype=torch.bool).tril(seen - width)
    starts = torch.arange(seen)[None] >= torch.arange(R)[:, None]
    return causal[None, None] & starts[:, None, None]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("scaling", [None, 0.3])
@pytest.mark.parametrize(
    ("width", "seen", "masked"), [(5, 5, False), (5, 5, True), (4, 9, True), (1, 9, True), (4, 9, False)]
)
def test_it_is_torchs_own(width: int, seen: int, masked: bool, scaling: float | None, dtype: torch.dtype) -> None:
    inputs = tensors(width, seen, dtype)
    mask = padded(width, seen) if masked else None
    weights = torch.linspace(-1, 1, R * width * HEADS * D, dtype=dtype).view(R, width, HEADS, D)
    if masked and width == seen:  # a query that sees nothing is padding: what it says is nobody's
        weights = weights * mask.any(-1)[:, 0, :, None, None] if mask is not None else weights

    def found(way: Any) -> list[Tensor]:
        out = way(MODULE, *inputs, mask, scaling=scaling, dropout=0.0)[0]
        assert torch.isfinite(out).all()
        return [out * (weights != 0), *torch.autograd.grad((out * weights).sum(), inputs)]

    for one, expected in zip(found(attend_grouped), found(sdpa_attention_forward), strict=True):
        error = float((one - expected).detach().norm() / expected.detach().norm())
        assert error < {torch.float32: 1e-6, torch.float64: 1e-14, torch.bfloat16: 1e-2}[dtype]


BIASED = SimpleNamespace(**vars(MODULE), k_proj=SimpleNamespace(bias=torch.ones(1)))


def test_what_all_keys_have_in_common_is_not_rounded_with_the_scores() -> None:
    query, key, value = (one.detach() for one in tensors(5, 5, torch.bfloat16))
    rounded = [query, key + 40, value]  # what there is to be precise about
    weights = torch.linspace(-1, 1, R * 5 * HEADS * D, dtype=torch.float64).view(R, 5, HEADS, D)

    def found(module: Any, dtype: torch.dtype) -> list[Tensor]:
        inputs = [one.to(dtype).requires_grad_() for one in rounded]
        out = attend_grouped(module, *inputs, None)[0]
        return [out.detach(), *torch.autograd.grad((out * weights.to(dtype)).sum(), inputs)]

    def off(module: Any) -> list[float]:
        pairs = zip(found(module, torch.bfloat16), exact, strict=True)
        return [float((one.double() - other).norm() / other.norm()) for one, other in pairs]

    exact = found(MODULE, torch.float64)
    centred, plain = off(BIASED), off(MODULE)
    assert max(centred) < 0.02
    assert all(far > 2 * near for near, far in zip(centred, plain, strict=True))
    assert found(BIASED, torch.float32)[0].equal(found(MODULE, torch.float32)[0])  # there it would only be work
    with torch.autocast("cpu", dtype=torch.bfloat16):
        errors = [float((found(one, torch.float32)[0].double() - exact[0]).norm()) for one in (BIASED, MODULE)]
    assert 2 * errors[0] < errors[1]


def test_two_keys_by_hand() -> None:
    # Scores 0 and log 3: weights 1/4 and 3/4 of the values 0 and 8. The first query sees the first key alone.
    query = torch.tensor([[[[1.0], [1.0]]]])
    key = torch.tensor([[[[0.0], [float(torch.tensor(3.0).log())]]]])
    value = torch.tensor([[[[0.0], [8.0]]]])
    out, _ = attend_grouped(SimpleNamespace(), query, key, value, None, scaling=1.0)
    assert out.flatten().tolist() == pytest.approx([0.0, 6.0])


def test_long_rows_are_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def theirs(module: Any, query: Tensor, *rest: Any, **how: Any) -> Any:
        asked.append(query.shape[2])
        return sdpa_attention_forward(module, query, *rest, **how)

    monkeypatch.setattr(attention, "sdpa_attention_forward", theirs)
    attend_grouped(MODULE, *tensors(5, 5), None, dropout=0.0)
    assert asked == []
    monkeypatch.setattr(attention, "MAX_SCORE_BYTES", 4 * R * HEADS * 5 * 5 - 1)
    attend_grouped(MODULE, *tensors(5, 5), None, dropout=0.0)
    attend_grouped(MODULE, *tensors(1, 9), padded(1, 9), dropout=0.0)
    assert asked == [5, 1]


def test_a_model_has_it_inside_only() -> None:
    model = small_qwen2()
    assert model.config._attn_implementation == "sdpa"
    with grouped_heads(model):
        assert model.config._attn_implementation == GROUPED_HEADS
    assert model.config._attn_implementation == "sdpa"
    model.config._attn_implementation = "eager"
    with grouped_heads(model):
        assert model.config._attn_implementation == "eager"
