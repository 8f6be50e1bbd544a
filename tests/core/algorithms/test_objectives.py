"""The clipped surrogate and the weights that make one number of it."""

from __future__ import annotations

from math import log, nan

import pytest
import torch

from core.algorithms.objectives import Reduction, clipped_surrogate, token_weights, weighted_sum

LOW, HIGH = 0.2, 0.28  # the ratio is clipped to [0.8, 1.28]


@pytest.mark.parametrize(
    ("advantage", "ratio", "value", "slope", "low", "high"),
    [
        # A > 0: what is above 1.28 earns no more (and pulls no more); what is below is not clipped.
        (+1.0, 0.50, +0.50, +0.50, False, False),
        (+1.0, 0.90, +0.90, +0.90, False, False),
        (+1.0, 1.00, +1.00, +1.00, False, False),
        (+1.0, 1.25, +1.25, +1.25, False, False),
        (+1.0, 1.50, +1.28, +0.00, False, True),
        # A < 0: what is below 0.8 saves no more; what is above is not clipped: min(-1.5, -1.28) = -1.5.
        (-1.0, 0.50, -0.80, +0.00, True, False),
        (-1.0, 0.90, -0.90, -0.90, False, False),
        (-1.0, 1.00, -1.00, -1.00, False, False),
        (-1.0, 1.50, -1.50, -1.50, False, False),
        # The advantage is a factor of both.
        (+2.0, 1.50, +2.56, +0.00, False, True),
        (-2.0, 0.50, -1.60, +0.00, True, False),
        (-2.0, 1.10, -2.20, -2.20, False, False),
        # No advantage, no clip.
        (+0.0, 1.50, +0.00, +0.00, False, False),
        (+0.0, 0.50, +0.00, +0.00, False, False),
    ],
)
def test_clip_table(advantage: float, ratio: float, value: float, slope: float, low: bool, high: bool) -> None:
    # With old = -1 and new = -1 + log(ratio): d value / d new = ratio * A where unclipped, 0 where clipped.
    new = torch.tensor([[-1.0 + log(ratio)]], requires_grad=True)
    old = torch.tensor([[-1.0]], requires_grad=True)
    got = clipped_surrogate(new, old, torch.tensor([advantage]), epsilon=LOW, epsilon_high=HIGH)
    got.values_NT.sum().backward()  # type: ignore[no-untyped-call]
    assert got.values_NT.item() == pytest.approx(value, abs=1e-6)
    assert new.grad is not None
    assert new.grad.item() == pytest.approx(slope, abs=1e-6)
    assert got.ratio_NT.item() == pytest.approx(ratio, rel=1e-6)
    assert (bool(got.low_NT), bool(got.high_NT)) == (low, high)
    assert old.grad is None  # the old log-probs are data


@pytest.mark.parametrize(
    ("epsilon", "epsilon_high", "at_ratio_half", "at_ratio_two"),
    [(0.1, 0.5, -0.9, 1.5), (0.5, 0.1, -0.5, 1.1), (0.2, 0.2, -0.8, 1.2), (0.2, 5.0, -0.8, 2.0)],
)
def test_the_bounds_are_separate(
    epsilon: float, epsilon_high: float, at_ratio_half: float, at_ratio_two: float
) -> None:
    new, old = torch.tensor([[log(0.5)], [log(2.0)]]), torch.zeros(2, 1)
    got = clipped_surrogate(new, old, torch.tensor([-1.0, 1.0]), epsilon=epsilon, epsilon_high=epsilon_high)
    assert got.values_NT.flatten().tolist() == pytest.approx([at_ratio_half, at_ratio_two])


def test_one_advantage_serves_all_factors_of_its_row() -> None:
    new = torch.zeros(2, 3)
    got = clipped_surrogate(new, new, torch.tensor([2.0, -1.0]), epsilon=LOW, epsilon_high=HIGH)
    assert got.values_NT.tolist() == [[2.0, 2.0, 2.0], [-1.0, -1.0, -1.0]]


@pytest.mark.parametrize("advantage", [-1.0, 0.0, 1.0])
def test_a_wild_token_gives_a_number(advantage: float) -> None:
    new = torch.tensor([[0.0, -1000.0]], requires_grad=True)
    old = torch.tensor([[-1000.0, 0.0]])
    got = clipped_surrogate(new, old, torch.tensor([advantage]), epsilon=LOW, epsilon_high=HIGH)
    got.values_NT.sum().backward()  # type: ignore[no-untyped-call]
    assert new.grad is not None
    assert got.values_NT.isfinite().all()
    assert new.grad.isfinite().all()


MASK = torch.tensor([[True, True, True], [True, False, False], [False, False, False]])


@pytest.mark.parametrize(
    ("reduction", "expected"),
    [
        # Two rows drew something: each weighs 1/2, shared by its 3 tokens and its 1 token.
        ("sequence_mean", [[1 / 6, 1 / 6, 1 / 6], [1 / 2, 0, 0], [0, 0, 0]]),
        # Four tokens were drawn.
        ("token_mean", [[1 / 4, 1 / 4, 1 / 4], [1 / 4, 0, 0], [0, 0, 0]]),
    ],
)
def test_token_weights(reduction: Reduction, expected: list[list[float]]) -> None:
    weights = token_weights(MASK, reduction)
    assert weights.tolist() == [pytest.approx(row) for row in expected]
    assert float(weights.sum()) == pytest.approx(1.0, abs=1e-15)


@pytest.mark.parametrize("reduction", ["sequence_mean", "token_mean"])
def test_where_nothing_was_drawn_nothing_weighs(reduction: Reduction) -> None:
    assert not token_weights(torch.zeros_like(MASK), reduction).any()


@pytest.mark.parametrize("reduction", ["sequence_mean", "token_mean"])
def test_weights_of_a_large_batch_sum_to_one(reduction: Reduction) -> None:
    lengths = torch.tensor([0, 1, 7, 13, 64, 100, 3, 0, 99])
    mask = torch.arange(100) < lengths.unsqueeze(-1)
    assert float(token_weights(mask, reduction).sum()) == pytest.approx(1.0, abs=1e-12)


def test_nan_at_weight_0_is_harmless_also_in_the_gradient() -> None:
    values = torch.full((3, 3), 5.0).masked_fill(~MASK, nan).requires_grad_()
    total = weighted_sum(values, token_weights(MASK, "token_mean"))
    total.backward()  # type: ignore[no-untyped-call]
    assert total.item() == 5.0
    assert values.grad is not None
    assert values.grad.tolist() == [[0.25] * 3, [0.25, 0, 0], [0, 0, 0]]
