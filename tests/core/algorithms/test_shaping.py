"""The overlong penalty: a table."""

from __future__ import annotations

import pytest
import torch

from core.algorithms.shaping import overlong_penalty


def test_table() -> None:
    # Budget 100, buffer 20: free up to 80, then 1/20 a token.
    lengths = torch.tensor([0, 79, 80, 81, 85, 90, 100, 130])
    got = overlong_penalty(lengths, max_length=100, buffer=20)
    assert got.tolist() == pytest.approx([0.0, 0.0, 0.0, -0.05, -0.25, -0.5, -1.0, -1.0])


@pytest.mark.parametrize("buffer", [0, -1, 101])
def test_a_buffer_outside_the_budget_is_refused(buffer: int) -> None:
    with pytest.raises(ValueError, match="buffer"):
        overlong_penalty(torch.tensor([1]), max_length=100, buffer=buffer)


def test_the_whole_budget_can_be_the_buffer() -> None:
    got = overlong_penalty(torch.tensor([0, 50, 100]), max_length=100, buffer=100)
    assert got.tolist() == pytest.approx([0.0, -0.5, -1.0])
