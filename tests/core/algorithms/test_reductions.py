"""The weights that make one number of a batch's tokens."""

from __future__ import annotations

from math import nan
from typing import get_args

import pytest
import torch
from torch import Tensor

from core.algorithms.names import Reduction
from core.algorithms.reductions import masked_sum, row_mean, token_mean, token_weights, weighted_sum

#                        row 0: 1 + 2 = 3, mean 1.5      row 1: 4        row 2: nothing drawn
VALUES = torch.tensor([[1.0, 2.0, nan], [4.0, nan, nan], [nan, nan, nan]])
DRAWN = torch.tensor([[True, True, False], [True, False, False], [False, False, False]])


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        (masked_sum(VALUES, DRAWN), [3.0, 4.0, 0.0]),
        (row_mean(VALUES, DRAWN), [1.5, 4.0, 0.0]),
        (token_mean(VALUES, DRAWN), 7 / 3),  # (1 + 2 + 4) / 3 tokens, not (1.5 + 4) / 2 rows
        (token_mean(VALUES, torch.zeros_like(DRAWN)), 0.0),
        (row_mean(VALUES, torch.zeros_like(DRAWN)), [0.0, 0.0, 0.0]),
    ],
)
def test_table(of: Tensor, expected: float | list[float]) -> None:
    assert of.tolist() == pytest.approx(expected)


def test_what_stands_under_the_mask_has_no_gradient() -> None:
    values = VALUES.clone().requires_grad_()
    row_mean(values, DRAWN).sum().backward()  # type: ignore[no-untyped-call]
    assert values.grad is not None
    assert values.grad.tolist() == [[0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]


MASK = torch.tensor([[True, True, True], [True, False, False], [False, False, False]])
REDUCTIONS = get_args(Reduction)


@pytest.mark.parametrize(
    ("reduction", "expected"),
    [
        # Two rows drew something: each weighs 1/2, shared by its 3 tokens and its 1 token.
        ("sequence_mean", [[1 / 6, 1 / 6, 1 / 6], [1 / 2, 0, 0], [0, 0, 0]]),
        # Four tokens were drawn.
        ("token_mean", [[1 / 4, 1 / 4, 1 / 4], [1 / 4, 0, 0], [0, 0, 0]]),
        # Three rows with a budget of 5 tokens each, the empty one too.
        ("constant_length", [[1 / 15, 1 / 15, 1 / 15], [1 / 15, 0, 0], [0, 0, 0]]),
        # Two rows drew something: the mean of their sums.
        ("sequence_sum", [[1 / 2, 1 / 2, 1 / 2], [1 / 2, 0, 0], [0, 0, 0]]),
    ],
)
def test_token_weights(reduction: Reduction, expected: list[list[float]]) -> None:
    weights = token_weights(MASK, reduction, 5)
    assert weights.dtype is torch.float64
    assert weights.tolist() == [pytest.approx(row) for row in expected]


@pytest.mark.parametrize("reduction", ["sequence_mean", "token_mean"])
def test_means_have_weights_that_sum_to_one(reduction: Reduction) -> None:
    lengths = torch.tensor([0, 1, 7, 13, 64, 100, 3, 0, 99])
    mask = torch.arange(100) < lengths.unsqueeze(-1)
    assert float(token_weights(mask, reduction).sum()) == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_where_nothing_was_drawn_nothing_weighs(reduction: Reduction) -> None:
    assert not token_weights(torch.zeros_like(MASK), reduction, 5).any()


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_padding_changes_nothing(reduction: Reduction) -> None:
    wide = torch.nn.functional.pad(MASK, (0, 4))
    assert torch.equal(token_weights(wide, reduction, 5)[:, :3], token_weights(MASK, reduction, 5))


@pytest.mark.parametrize("max_length", [None, 0])
def test_constant_length_needs_the_length(max_length: int | None) -> None:
    with pytest.raises(ValueError, match="max_length"):
        token_weights(MASK, "constant_length", max_length)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_nan_at_weight_0_is_harmless_also_in_the_gradient(reduction: Reduction) -> None:
    values = torch.full((3, 3), 5.0).masked_fill(~MASK, nan).requires_grad_()
    weights = token_weights(MASK, reduction, 5)
    total = weighted_sum(values, weights)
    total.backward()  # type: ignore[no-untyped-call]
    assert total.item() == pytest.approx(5.0 * float(weights.sum()))
    assert values.grad is not None
    assert torch.equal(values.grad, weights.float())
