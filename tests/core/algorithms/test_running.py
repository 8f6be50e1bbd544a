"""Running statistics: two steps by hand, and no bias towards their start at 0."""

from __future__ import annotations

from math import nan, sqrt

import pytest
import torch

from core.algorithms.running import Running, updated


def test_two_steps_by_hand() -> None:
    # Decay 0.9. Step 1: rewards 1 3: mean 2, variance 1. Step 2: 4 4 7 (one missing): mean 5, and
    # about the 2 from before, not about its own 5, a variance of (4 + 4 + 25) / 3 = 11.
    one = updated(Running(), torch.tensor([[1.0, 3.0]]), 0.9)
    assert (one.count, one.weight, one.mean, one.variance) == pytest.approx((1, 0.1, 0.2, 0.1))
    assert (one.corrected_mean, one.corrected_std) == pytest.approx((2.0, 1.0))
    two = updated(one, torch.tensor([[4.0, nan], [4.0, 7.0]]), 0.9)
    assert (two.count, two.weight, two.mean, two.variance) == pytest.approx((2, 0.19, 0.68, 1.19))
    # Corrected: the two steps weigh 9 : 10. Mean (9 * 2 + 10 * 5) / 19, variance (9 * 1 + 10 * 11) / 19.
    assert (two.corrected_mean, two.corrected_std) == pytest.approx((68 / 19, sqrt(119 / 19)))


@pytest.mark.parametrize("decay", [0.0, 0.5, 0.95])
def test_constant_statistics_are_read_back_from_the_first_step_on(decay: float) -> None:
    running = Running()
    for count in range(1, 30):
        running = updated(running, torch.tensor([[1.0, 5.0]]), decay)
        assert running.weight == pytest.approx(1 - decay**count)
        assert (running.corrected_mean, running.corrected_std) == pytest.approx((3.0, 2.0))


def test_a_step_without_a_reward_changes_nothing() -> None:
    running = updated(Running(), torch.tensor([[1.0, 3.0]]), 0.9)
    assert updated(running, torch.full((2, 2), nan), 0.9) == running


def test_the_spread_between_steps_counts() -> None:
    """One prompt a step, at level 0 or 1, its two rewards 0.01 apart: the std is that of the levels, not 0.005."""
    running = Running()
    for step in range(200):
        running = updated(running, torch.tensor([[step % 2 + 0.0, step % 2 + 0.01]]), 0.9)
    assert 0.4 < running.corrected_std < 0.7
