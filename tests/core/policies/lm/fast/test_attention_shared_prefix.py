"""Prompts and completions in one row: each completion gets what torch's own attention gives it beside its prompt."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from core.policies.lm.fast import attention as module
from core.policies.lm.fast.attention import SHARED_PREFIX, SharedPrefix, attend_shared_prefix, shared_prefix_attention
from tests.fakes import small_qwen2

HEADS, GROUPS, D, S, W = 6, 2, 8, 5, 4
MODULE = SimpleNamespace(num_key_value_groups=HEADS // GROUPS, is_causal=True)
MASK = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1], [0, 1, 1, 1, 1]])


def tensors(counts: Sequence[int], width: int = W, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """Queries, keys and values of a whole row."""
    generator = torch.Generator().manual_seed(0)
    tokens = MASK.numel() + sum(counts) * width
    shapes = [(1, heads, tokens, D) for heads in (HEADS, GROUPS, GROUPS)]
    drawn = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    return [one.to(dtype).requires_grad_() for one in drawn]


def one_by_one(inputs: Sequence[Tensor], counts: Sequence[int], width: int = W, mask: Tensor = MASK) -> Tensor:
    """The same (M, heads, D), of every completion alone, without its prompt's padding; padding is left at 0."""
    result = torch.zeros(inputs[0].shape[2], HEADS, D, dtype=inputs[0].dtype)
    start = mask.numel()
    for prompt, count in enumerate(counts):
        real = prompt * S + mask[prompt].nonzero().flatten()
        for at in [torch.arange(start + width * row, start + width * (row + 1)) for row in range(count)] or [real[:0]]:
            row = torch.cat([real, at])
            alone = [one[:, :, row] for one in inputs]
            result = result.index_copy(0, row, sdpa_attention_forward(MODULE, *alone, None, dropout=0.0)[0][0])
        start += width * count
    return result


@pytest.mark.parametrize("grouped", [True, False])
@pytest.mark.parametrize("counts", [(2, 2, 2), (1, 3, 2), (1, 1, 1)])
@pytest.mark.parametrize("width", [W, 1, 0])
@pytest.mark.parametrize("mask", [MASK, torch.ones_like(MASK)], ids=["padded", "whole"])
def test_each_completion_is_as_if_alone(mask: Tensor, width: int, counts: Sequence[int], grouped: bool) -> None:
    inputs = tensors(counts, width)
    laid = SharedPrefix(mask, counts, width, grouped=grouped)
    assert (laid.by_prompts is None) == bool(mask.all())  # torch's own causal kernels then
    assert SharedPrefix(mask, counts, width, masked=True).by_prompts is not None
    found = attend_shared_prefix(MODULE, *inputs, None, prefix=laid, dropout=0.0)[0][0]
    assert torch.isfinite(found).all()
    real = torch.cat([mask.flatten().bool(), torch.ones(sum(counts) * width, dtype=torch.bool)])
    expected = one_by_one(inputs, counts, width, mask)
    torch.testing.assert_close(found[real], expected[real])
    weights = torch.linspace(-1, 1, expected.numel(), dtype=expected.dtype).view(expected.shape)
    for one, other in zip(
        torch.autograd.grad((found * weights)[real].sum(), inputs),
        torch.autograd.grad((expected * weights)[real].sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_given_scaling_is_taken_and_rounding_is_the_dtypes(dtype: torch.dtype) -> None:
    exact, inputs = tensors((2, 2, 2)), tensors((2, 2, 2), dtype=dtype)
    laid = SharedPrefix(MASK, (2, 2, 2), W)
    expected = attend_shared_prefix(MODULE, *exact, None, prefix=laid, scaling=0.7)[0]
    found = attend_shared_prefix(MODULE, *inputs, None, prefix=laid, scaling=0.7)[0]
    other = attend_shared_prefix(MODULE, *exact, None, prefix=laid)[0]
    error = float((found - expected)[0, MASK.numel() :].detach().norm() / expected[0, MASK.numel() :].detach().norm())
    assert error < {torch.float32: 1e-6, torch.bfloat16: 2e-2}[dtype]
    assert float((other - expected).detach().norm()) > 0.1


@pytest.mark.parametrize("counts", [(2, 2, 2), (1, 3, 2)])
def test_keys_with_a_bias_are_taken_about_their_mean(counts: Sequence[int]) -> None:
    biased = SimpleNamespace(**vars(MODULE), k_proj=SimpleNamespace(bias=torch.ones(1)))
    inputs, laid = tensors(counts), SharedPrefix(MASK, counts, W)

    def found(module: Any, at: Sequence[Tensor]) -> Tensor:
        return attend_shared_prefix(module, *at, None, prefix=laid)[0][0]

    (query, key, value), real = [one.detach().bfloat16() for one in inputs], slice(MASK.numel(), None)
    rounded = [query, key + 40, value]
    exact = found(MODULE, [one.double() for one in rounded])[real]
    near, far = (float((found(one, rounded)[real].double() - exact).norm() / exact.norm()) for one in (biased, MODULE))
    assert near < 0.01
    assert far > 0.03


def test_a_completion_does_not_see_its_neighbours() -> None:
    inputs = [one.detach() for one in tensors((2, 2, 2))]
    laid = SharedPrefix(MASK, (2, 2, 2), W)
    before = attend_shared_prefix(MODULE, *inputs, None, prefix=laid)[0][0]
    second = slice(MASK.numel() + W, MASK.numel() + 2 * W)
    for one in inputs:
        one[:, :, second] += 1
    after = attend_shared_prefix(MODULE, *inputs, None, prefix=laid)[0][0]
    others = torch.ones(len(before), dtype=torch.bool)
    others[second] = False
    assert torch.equal(before[others], after[others])
    assert not torch.isclose(before[second], after[second]).all()


def test_long_rows_are_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, ...]] = []

    def theirs(module: Any, query: Tensor, *rest: Any, **how: Any) -> Any:
        asked.append(tuple(query.shape))
        return sdpa_attention_forward(module, query, *rest, **how)

    inputs, laid = tensors((2, 2, 2)), SharedPrefix(MASK, (2, 2, 2), W)
    monkeypatch.setattr(module, "sdpa_attention_forward", theirs)
    quick = attend_shared_prefix(MODULE, *inputs, None, prefix=laid)[0]
    assert asked == []
    monkeypatch.setattr(module, "MAX_SCORE_BYTES", 4 * 6 * HEADS * W * (S + W) - 1)
    torch.testing.assert_close(attend_shared_prefix(MODULE, *inputs, None, prefix=laid)[0], quick)
    assert asked == [(6, HEADS, W, D)]


def test_a_model_has_it_inside_only_whatever_it_had() -> None:
    model = small_qwen2()
    for own in ("sdpa", "eager"):
        model.config._attn_implementation = own
        with shared_prefix_attention(model):
            assert model.config._attn_implementation == SHARED_PREFIX
        assert model.config._attn_implementation == own
