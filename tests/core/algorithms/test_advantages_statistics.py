"""Statistics of rewards: groups dead or not, mean, std, ranks, running averages; tables worked by hand."""

from __future__ import annotations

from fractions import Fraction
from math import isnan, nan, sqrt

import numpy as np
import pytest

from core.algorithms.advantages import Running, centred_ranks, dead_groups, group_std, line_sum, moments, updated


@pytest.mark.parametrize(
    ("rewards", "dead"),
    [
        ([0.3, 0.3, 0.3], True),
        ([0.3, 0.3, 0.4], False),
        ([0.0, 1e-10], True),  # tolerance 1e-9 * max(1, |r|)
        ([0.0, 1e-8], False),
        ([1e9, 1e9 + 0.5], True),  # 1e-9 * 1e9 = 1
        ([1e9, 1e9 + 2.0], False),
        ([-1e9, -1e9 - 0.5], True),
        ([0.3, nan, 0.3], True),
        ([0.3, nan, 0.4], False),
        ([0.3, nan, nan], True),  # one is no group
        ([nan, nan, nan], True),
    ],
)
def test_dead_groups(rewards: list[float], dead: bool) -> None:
    assert dead_groups([rewards]).tolist() == [dead]


@pytest.mark.parametrize(
    ("rewards", "ddof", "mean", "variance"),
    [
        # 1 2 3 6: mean 3, squares 4 + 1 + 0 + 9 = 14
        ([1.0, 2.0, 3.0, 6.0], 0, 3.0, Fraction(14, 4)),
        ([1.0, 2.0, 3.0, 6.0], 1, 3.0, Fraction(14, 3)),
        ([1.0, nan, 3.0], 1, 2.0, Fraction(2, 1)),
        ([1.0, nan], 0, 1.0, Fraction(0)),
        ([1.0, nan], 1, 1.0, Fraction(0)),  # too few for a divisor of n - 1: 0, not NaN
        ([nan, nan], 0, 0.0, Fraction(0)),
    ],
)
def test_mean_and_std(rewards: list[float], ddof: int, mean: float, variance: Fraction) -> None:
    present = [float(not isnan(reward)) for reward in rewards]
    assert moments(np.nan_to_num([rewards]), np.array([present]), ddof)[0].tolist() == [[pytest.approx(mean)]]
    assert group_std([rewards], ddof).tolist() == [[pytest.approx(sqrt(variance))]]


@pytest.mark.parametrize(
    ("rewards", "best", "dead"),
    [
        ([0.0, 0.0, 0.0], 1.0, False),  # all wrong: the virtual 1 gives it something to learn
        ([1.0, 1.0, 1.0], 1.0, True),  # all right: nothing better to be had
        ([0.0, nan, nan], 1.0, False),  # one and the virtual one are two
        ([1.0, nan, nan], 1.0, True),
        ([nan, nan, nan], 1.0, True),  # nobody to learn: the virtual one alone is no group
    ],
)
def test_dead_groups_with_a_virtual_best(rewards: list[float], best: float, dead: bool) -> None:
    assert dead_groups([rewards], best).tolist() == [dead]


@pytest.mark.parametrize(
    ("counts", "best", "dead"),
    [
        ([4, 0], None, True),
        ([3, 1], None, False),
        ([0, 1], None, True),
        ([0, 0], None, True),
        ([4, 0], 1.0, False),
        ([0, 4], 1.0, True),
        ([0, 0], 1.0, True),
    ],
)
def test_dead_groups_of_counted_rewards(counts: list[int], best: float | None, dead: bool) -> None:
    assert dead_groups([[0.0, 1.0]], best, counts_PC=[counts]).tolist() == [dead]


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [
        # Ranks 1 2 3 4, their mean 2.5.
        ([0.0, 0.2, 0.4, 1.0], [-1.5, -0.5, 0.5, 1.5]),
        ([1.0, 0.4, 0.0, 0.2], [1.5, 0.5, -1.5, -0.5]),
        # Ties take the mean of their ranks: 1, (2 + 3) / 2, (2 + 3) / 2, 4.
        ([0.0, 5.0, 5.0, 9.0], [-1.5, 0.0, 0.0, 1.5]),
        # Binary, two right of five: ranks 2 2 2 4.5 4.5, mean 3: two levels, whatever the rewards are worth.
        ([0.0, 0.0, 0.0, 7.0, 7.0], [-1.0, -1.0, -1.0, 1.5, 1.5]),
        # A missing reward has no rank: 1, 2, 3 of three.
        ([3.0, nan, 1.0, 2.0], [1.0, nan, -1.0, 0.0]),
        ([0.3, 0.3, 0.3], [0.0, 0.0, 0.0]),
        # Equal but for rounding is a tie: ranks 1.5 1.5 3.
        ([0.1 + 0.2, 0.3, 1.0], [-0.5, -0.5, 1.0]),
        ([nan, 4.0], [nan, 0.0]),
    ],
)
def test_centred_ranks(rewards: list[float], expected: list[float]) -> None:
    present = [not isnan(reward) for reward in rewards]
    (got,) = centred_ranks(np.nan_to_num([rewards]), np.array([present], dtype=np.float64)).tolist()
    assert [rank for rank, there in zip(got, present, strict=True) if there] == [e for e in expected if not isnan(e)]


def test_ranks_of_counted_rewards() -> None:
    # Three 0 and two 7: ranks 2 2 2 4.5 4.5, mean 3.
    assert centred_ranks(np.array([[0.0, 7.0]]), np.array([[3.0, 2.0]])).tolist() == [[-1.0, 1.5]]


@pytest.mark.parametrize(
    ("values", "weights", "ddof", "mean", "variance"),
    [
        # 1 once and 4 twice is 1 4 4: mean 3, squares 4 + 1 + 1 = 6, divisors 3 and 2.
        ([1.0, 4.0], [1.0, 2.0], 0, 3.0, 2.0),
        ([1.0, 4.0], [1.0, 2.0], 1, 3.0, 3.0),
        ([1.0, 4.0, nan], [1.0, 2.0, 0.0], 1, 3.0, 3.0),
        ([1.0, 4.0], [0.0, 1.0], 1, 4.0, 0.0),
        ([nan, nan], [0.0, 0.0], 0, 0.0, 0.0),
    ],
)
def test_moments(values: list[float], weights: list[float], ddof: int, mean: float, variance: float) -> None:
    got = moments(np.nan_to_num([values]), np.array([weights]), ddof)
    assert [x.item() for x in got] == pytest.approx([mean, sqrt(variance)])


def test_a_line_s_sum_has_one_order() -> None:
    # Of every fourth value: 1 + 1, 1e16, -1e16, 1; together 3. One by one 1 + 1e16 is 1e16, and 2 would be left.
    assert line_sum(np.array([[1.0, 1e16, -1e16, 1.0, 1.0]])).tolist() == [[3.0]]
    assert line_sum(np.arange(22.0).reshape(2, 11)).tolist() == [[55.0], [176.0]]


def level(running: Running) -> tuple[float, float]:
    """The mean and the std that a step is given."""
    assert running.level is not None
    return running.level.mean, running.level.std


def test_before_the_first_step_there_is_no_level() -> None:
    assert Running().level is None


def test_two_steps_by_hand() -> None:
    # Decay 0.9. Step 1: rewards 1 3: mean 2, variance 1. Step 2: 4 4 7 (one missing): mean 5, and
    # about the 2 from before, not about its own 5, a variance of (4 + 4 + 25) / 3 = 11.
    one = updated(Running(), [[1.0, 3.0]], 0.9)
    assert (one.count, one.weight, one.mean, one.variance) == pytest.approx((1, 0.1, 0.2, 0.1))
    assert level(one) == pytest.approx((2.0, 1.0))
    two = updated(one, [[4.0, nan], [4.0, 7.0]], 0.9)
    assert (two.count, two.weight, two.mean, two.variance) == pytest.approx((2, 0.19, 0.68, 1.19))
    # Corrected: the two steps weigh 9 : 10. Mean (9 * 2 + 10 * 5) / 19, variance (9 * 1 + 10 * 11) / 19.
    assert level(two) == pytest.approx((68 / 19, sqrt(119 / 19)))


@pytest.mark.parametrize("decay", [0.0, 0.5, 0.95])
def test_constant_statistics_are_read_back_from_the_first_step_on(decay: float) -> None:
    running = Running()
    for count in range(1, 30):
        running = updated(running, [[1.0, 5.0]], decay)
        assert running.weight == pytest.approx(1 - decay**count)
        assert level(running) == pytest.approx((3.0, 2.0))


def test_a_step_without_a_reward_changes_nothing() -> None:
    running = updated(Running(), [[1.0, 3.0]], 0.9)
    assert updated(running, [[nan, nan], [nan, nan]], 0.9) == running


def test_the_spread_between_steps_counts() -> None:
    """One prompt a step, at level 0 or 1, its two rewards 0.01 apart: the std is that of the levels, not 0.005."""
    running = Running()
    for step in range(200):
        running = updated(running, [[step % 2 + 0.0, step % 2 + 0.01]], 0.9)
    assert 0.4 < level(running)[1] < 0.7


def test_the_rule_of_counts_by_hand() -> None:
    # Two rewards a step. Step 1: 1 3, mean 2, variance 1 about its own mean, weight min(0.1, 1 / 2). Step 2: 4 8, mean
    # 6, variance 4 about its own mean, weight min(0.1, 1 / 4). So they weigh 0.09 : 0.1.
    one = updated(Running(), [[1.0, 3.0]], 0.5, "count")
    assert (one.rewards, one.weight, one.mean, one.variance) == pytest.approx((2, 0.1, 0.2, 0.1))
    two = updated(one, [[4.0, 8.0]], 0.5, "count")
    assert two.rewards == 4
    assert level(two) == pytest.approx(((0.09 * 2 + 0.1 * 6) / 0.19, sqrt((0.09 * 1 + 0.1 * 4) / 0.19)))


def test_counted_statistics_stand_ever_stiller() -> None:
    running = updated(Running(), [[0.0, 0.0]], 0.9, "count")
    for _ in range(499):
        running = updated(running, [[0.0, 0.0]], 0.9, "count")
    moved = updated(running, [[1.0, 1.0]], 0.9, "count")  # the 1,001st and 1,002nd reward: a weight of 1 / 1002
    assert moved.mean == pytest.approx(1 / 1002)
