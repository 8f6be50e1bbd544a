"""The overlong penalty: a table. Entropy weights: by hand, and that credit moves inside a class, its sum unchanged."""

from __future__ import annotations

from math import nan

import pytest
import torch
from torch import Tensor

from core.algorithms.shaping import entropy_sequence_weights, entropy_token_weights, overlong_penalty


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


# One group of 5: two right, two wrong, one at the baseline.
ADVANTAGES = torch.tensor([[1.0, 0.5, -1.0, -0.5, 0.0]])
ENTROPIES = torch.tensor([[1.0, 2.0], [3.0, nan], [1.0, 4.0], [4.0, 1.0], [7.0, nan]])
MASK = ~ENTROPIES.isnan()


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        (
            # t = 0, right: 2 * 1 / (1 + 3) = 0.5, 2 * 3 / 4 = 1.5. Wrong: 1 / H is 1, 1/4: 2 * 1 / 1.25 = 1.6, 0.4.
            # t = 1, right: row 0 alone: 1. Wrong: 1/4 and 1: 0.4 and 1.6.
            1.0,
            [[0.5, 1.0], [1.5, 1.0], [1.6, 0.4], [0.4, 1.6], [1.0, 1.0]],
        ),
        # Half of each: (1 + w) / 2.
        (0.5, [[0.75, 1.0], [1.25, 1.0], [1.3, 0.7], [0.7, 1.3], [1.0, 1.0]]),
        (0.0, [[1.0, 1.0]] * 5),
    ],
)
def test_token_weights(share: float, expected: list[list[float]]) -> None:
    got = entropy_token_weights(ENTROPIES, MASK, ADVANTAGES, share=share)
    assert got.tolist() == [pytest.approx(row, abs=1e-9) for row in expected]


def test_sequence_weights() -> None:
    # Mean entropies 1.5, 3 | 2.5, 2.5 | 7. Right: 2 * 1.5 / 4.5 = 2/3 and 4/3. Wrong: equal, 1 each.
    got = entropy_sequence_weights(ENTROPIES, MASK, ADVANTAGES, share=1.0)
    assert got.tolist() == pytest.approx([2 / 3, 4 / 3, 1.0, 1.0, 1.0])
    # Wrong with means 1 and 4: 1.6 and 0.4; half of it: 1.3 and 0.7.
    wrong = entropy_sequence_weights(
        torch.tensor([[1.0], [4.0]]), torch.ones(2, 1).bool(), -torch.ones(1, 2), share=0.5
    )
    assert wrong.tolist() == pytest.approx([1.3, 0.7])


def random_batch() -> tuple[Tensor, Tensor, Tensor]:
    """4 groups of 6 rows of 0 to 9 tokens."""
    generator = torch.Generator().manual_seed(1)
    lengths = torch.randint(0, 10, (24,), generator=generator)
    mask = torch.arange(9) < lengths.unsqueeze(-1)
    entropies = torch.rand(24, 9, generator=generator).masked_fill(~mask, nan)
    return entropies, mask, torch.randn(4, 6, generator=generator)


@pytest.mark.parametrize("share", [0.3, 1.0])
@pytest.mark.parametrize("sign", [1, -1])
def test_the_mean_weight_of_a_class_is_one_at_every_position(share: float, sign: int) -> None:
    entropies, mask, advantages = random_batch()
    tokens = entropy_token_weights(entropies, mask, advantages, share=share).reshape(4, 6, 9)
    sequences = entropy_sequence_weights(entropies, mask, advantages, share=share).reshape(4, 6)
    members = (sign * advantages > 0).unsqueeze(-1) & mask.reshape(4, 6, 9)
    sums, counts = (tokens * members).sum(1), members.sum(1)
    assert torch.allclose(sums, counts.double(), atol=1e-12)
    drawn = members.any(-1)
    assert torch.allclose((sequences * drawn).sum(1), drawn.sum(1).double(), atol=1e-12)
    assert tokens.std() > 0.01
    assert sequences.std() > 0.01


def test_the_uncertain_success_and_the_certain_failure_weigh_more() -> None:
    entropies = torch.tensor([[0.1], [0.9]])
    for sign in (1.0, -1.0):
        low, high = entropy_token_weights(
            entropies, torch.ones(2, 1).bool(), torch.full((1, 2), sign), share=0.5
        ).flatten()
        assert (high > low) == (sign > 0)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_without_any_entropy_every_weight_is_one(sign: float) -> None:
    zero, mask, advantages = torch.zeros(3, 2), torch.ones(3, 2).bool(), torch.full((1, 3), sign)
    assert torch.allclose(entropy_token_weights(zero, mask, advantages, share=1.0), torch.ones(3, 2).double())
    assert torch.allclose(entropy_sequence_weights(zero, mask, advantages, share=1.0), torch.ones(3).double())


def test_groups_do_not_see_each_other() -> None:
    entropies, mask, advantages = random_batch()
    whole = entropy_token_weights(entropies, mask, advantages, share=1.0)
    second = entropy_token_weights(entropies[6:12], mask[6:12], advantages[1:2], share=1.0)
    assert torch.equal(whole[6:12], second)


def test_there_is_no_gradient_and_no_nan() -> None:
    entropies, mask, advantages = random_batch()
    entropies.requires_grad_()
    for got in (
        entropy_token_weights(entropies, mask, advantages, share=1.0),
        entropy_sequence_weights(entropies, mask, advantages, share=1.0),
    ):
        assert not got.requires_grad
        assert got.isfinite().all()
