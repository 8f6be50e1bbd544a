"""Statistics of groups: dead or not, mean, std, ranks; tables worked by hand."""

from __future__ import annotations

from fractions import Fraction
from math import nan, sqrt

import pytest
import torch

from core.algorithms.group_statistics import centred_ranks, dead_groups, group_mean, group_std, moments, with_virtual


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
    assert dead_groups(torch.tensor([rewards], dtype=torch.float64)).tolist() == [dead]


@pytest.mark.parametrize(
    ("rewards", "ddof", "mean", "variance"),
    [
        # 1 2 3 6: mean 3, squares 4 + 1 + 0 + 9 = 14
        ([1.0, 2.0, 3.0, 6.0], 0, 3.0, Fraction(14, 4)),
        ([1.0, 2.0, 3.0, 6.0], 1, 3.0, Fraction(14, 3)),
        ([1.0, nan, 3.0], 1, 2.0, Fraction(2, 1)),
        ([1.0, nan], 0, 1.0, Fraction(0)),
        ([1.0, nan], 1, 1.0, Fraction(0)),  # too few for a divisor of n - 1: 0, not NaN
        ([nan, nan], 0, nan, Fraction(0)),
    ],
)
def test_mean_and_std(rewards: list[float], ddof: int, mean: float, variance: Fraction) -> None:
    row = torch.tensor([rewards], dtype=torch.float64)
    assert group_mean(row).tolist() == [[pytest.approx(mean, nan_ok=True)]]
    assert group_std(row, ddof).tolist() == [[pytest.approx(sqrt(variance))]]


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
    assert dead_groups(torch.tensor([rewards], dtype=torch.float64), best).tolist() == [dead]


def test_the_virtual_member_is_the_last_column_where_any_is_present() -> None:
    got = with_virtual(torch.tensor([[0.0, nan], [nan, nan]], dtype=torch.float64), 2.0)
    assert got.nan_to_num(-1.0).tolist() == [[0.0, -1.0, 2.0], [-1.0, -1.0, -1.0]]


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
    got = centred_ranks(torch.tensor([rewards], dtype=torch.float64)).tolist()[0]
    assert got == pytest.approx(expected, abs=0, nan_ok=True)


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
    got = moments(torch.tensor([values]).double(), torch.tensor([weights]).double(), ddof)
    assert [float(x) for x in got] == pytest.approx([mean, sqrt(variance)])
