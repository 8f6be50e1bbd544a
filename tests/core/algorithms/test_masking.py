"""Means over what was really drawn."""

from __future__ import annotations

from math import nan

import pytest
import torch
from torch import Tensor

from core.algorithms.masking import masked_sum, row_mean, token_mean

#                        row 0: 1 + 2 = 3, mean 1.5      row 1: 4        row 2: nothing drawn
VALUES = torch.tensor([[1.0, 2.0, nan], [4.0, nan, nan], [nan, nan, nan]])
MASK = torch.tensor([[True, True, False], [True, False, False], [False, False, False]])


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        (masked_sum(VALUES, MASK), [3.0, 4.0, 0.0]),
        (row_mean(VALUES, MASK), [1.5, 4.0, 0.0]),
        (token_mean(VALUES, MASK), 7 / 3),  # (1 + 2 + 4) / 3 tokens, not (1.5 + 4) / 2 rows
        (token_mean(VALUES, torch.zeros_like(MASK)), 0.0),
        (row_mean(VALUES, torch.zeros_like(MASK)), [0.0, 0.0, 0.0]),
    ],
)
def test_table(of: Tensor, expected: float | list[float]) -> None:
    assert of.tolist() == pytest.approx(expected)


def test_what_stands_under_the_mask_has_no_gradient() -> None:
    values = VALUES.clone().requires_grad_()
    row_mean(values, MASK).sum().backward()  # type: ignore[no-untyped-call]
    assert values.grad is not None
    assert values.grad.tolist() == [[0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
