"""Truncated importance weights: a table, and what stands off the mask."""

from __future__ import annotations

from math import log, nan

import pytest
import torch

from core.algorithms.importance import truncated_weights


def test_table() -> None:
    # old / drawn = 1, 1.5, 0.5, 4, the last bounded at 2; nothing bounds from below.
    drawn = torch.full((1, 4), -1.0)
    old = drawn + torch.tensor([[0.0, log(1.5), log(0.5), log(4.0)]])
    got = truncated_weights(old.requires_grad_(), drawn, 2.0)
    assert got.tolist()[0] == pytest.approx([1.0, 1.5, 0.5, 2.0])
    assert not got.requires_grad


def test_wild_gaps_give_numbers() -> None:
    got = truncated_weights(torch.tensor([[0.0, -1000.0]]), torch.tensor([[-1000.0, 0.0]]), 3.0)
    assert got.tolist() == [[3.0, 0.0]]


def test_off_the_mask_the_weight_is_one_and_carries_no_nan_into_a_gradient() -> None:
    mask = torch.tensor([[True, False]])
    weights = truncated_weights(torch.tensor([[-1.0, nan]]), torch.tensor([[-1.0, nan]]), 2.0, mask_NT=mask)
    assert weights.tolist() == [[1.0, 1.0]]
    assert truncated_weights(torch.zeros(1, 2), torch.zeros(1, 2), 0.5, mask_NT=mask).tolist() == [[0.5, 1.0]]
