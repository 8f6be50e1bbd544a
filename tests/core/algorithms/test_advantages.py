"""Group advantages: tables worked by hand, and groups without signal, which are exactly 0."""

from __future__ import annotations

from itertools import permutations
from math import inf, nan, sqrt
from typing import Literal

import pytest
import torch
from torch import Tensor

from core.algorithms import advantages as axes
from core.algorithms.advantages import Normaliser, dead_groups

Scale = Literal["group", "none"]
TINY = 1e-12  # an eps that does not show in six digits


def group_advantages(rewards_PK: Tensor, *, scale: Scale, ddof: int, eps: float) -> Tensor:
    """Against the group's mean: the two points of the table that most trainers have."""
    how = Normaliser(transform="none", baseline="group", scale_rewards=scale, ddof=ddof, eps=eps)
    return axes.advantages(rewards_PK, how)


def advantages(
    rewards: list[float],
    *,
    scale: Scale = "group",
    ddof: int = 0,
    eps: float = TINY,
    dtype: torch.dtype = torch.float64,
) -> list[float]:
    """The advantages of one group."""
    (row,) = group_advantages(torch.tensor([rewards], dtype=dtype), scale=scale, ddof=ddof, eps=eps).tolist()
    return list(row)


ONE_OF_EIGHT = [1.0] + [0.0] * 7


@pytest.mark.parametrize(
    ("rewards", "ddof", "expected"),
    [
        # K=2: mean m, both deviate by d = (high - low) / 2. ddof 0: std = d, so +-1 whatever the rewards are.
        ([0.0, 1.0], 0, [-1.0, 1.0]),
        ([0.7, 0.2], 0, [1.0, -1.0]),
        # ddof 1: std = sqrt(2 d^2 / 1) = d sqrt 2, so +-0.7071.
        ([0.0, 1.0], 1, [-sqrt(0.5), sqrt(0.5)]),
        ([0.7, 0.2], 1, [sqrt(0.5), -sqrt(0.5)]),
        # K=8, one success: mean 1/8, deviations 7/8 and -1/8, squares 49/64 + 7/64 = 7/8.
        # ddof 0: std = sqrt(7/64); A = (7/8) / (sqrt(7)/8) = sqrt(7) = 2.6458, the others -1/sqrt(7).
        (ONE_OF_EIGHT, 0, [sqrt(7)] + [-1 / sqrt(7)] * 7),
        # ddof 1: std = sqrt(1/8); A = (7/8) sqrt(8) = 2.4749, the others -sqrt(8)/8.
        (ONE_OF_EIGHT, 1, [7 * sqrt(8) / 8] + [-sqrt(8) / 8] * 7),
        # K=4, 0 0.2 0.4 1.0: mean 0.4, deviations -0.4 -0.2 0 0.6, squares 0.56; ddof 1: std = sqrt(0.56 / 3).
        ([0.0, 0.2, 0.4, 1.0], 1, [d / sqrt(0.56 / 3) for d in (-0.4, -0.2, 0.0, 0.6)]),
        # A missing reward is no member of its group: mean of 1 and 0, and not of 1, 0, 0.
        ([1.0, nan, 0.0], 0, [1.0, 0.0, -1.0]),
        ([1.0, nan, 0.0, nan], 1, [sqrt(0.5), 0.0, -sqrt(0.5), 0.0]),
        # Fewer than two present: nothing to compare with.
        ([1.0, nan, nan], 0, [0.0, 0.0, 0.0]),
        ([nan, nan], 0, [0.0, 0.0]),
    ],
)
def test_z_scores(rewards: list[float], ddof: int, expected: list[float]) -> None:
    assert advantages(rewards, ddof=ddof) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [
        ([0.0, 1.0], [-0.5, 0.5]),
        ([1.0, 0.0, 0.0, 0.0], [0.75, -0.25, -0.25, -0.25]),
        ([3.0, nan, 0.0], [1.5, 0.0, -1.5]),
    ],
)
def test_mean_only(rewards: list[float], expected: list[float]) -> None:
    assert advantages(rewards, scale="none", eps=0.5, ddof=1) == expected  # neither eps nor ddof has a part in it


def test_eps_is_added_to_the_std_and_is_no_floor() -> None:
    # std 0.5, eps 0.5: 0.5 / (0.5 + 0.5) = 0.5. A floor of 0.5 would leave 0.5 / 0.5 = 1.
    assert advantages([0.0, 1.0], eps=0.5) == [-0.5, 0.5]


def test_groups_do_not_see_each_other() -> None:
    rewards = torch.tensor([[0.0, 1.0], [5.0, 5.0], [7.0, 3.0]])
    got = group_advantages(rewards, scale="group", ddof=0, eps=TINY)
    assert got.tolist() == [pytest.approx([-1, 1]), [0.0, 0.0], pytest.approx([1, -1])]


def test_the_answer_is_float64_whatever_the_rewards_are() -> None:
    for dtype in (torch.float16, torch.float32, torch.float64):
        assert group_advantages(torch.tensor([[0, 1]], dtype=dtype), scale="group", ddof=1, eps=1e-4).dtype is (
            torch.float64
        )


@pytest.mark.parametrize("wrong", [inf, -inf])
def test_infinite_rewards_are_refused(wrong: float) -> None:
    with pytest.raises(ValueError, match="infinite reward"):
        advantages([0.0, wrong])


def equal_groups() -> list[Tensor]:
    """2,700 groups of equal rewards, by size: the constants 0.01, 0.02, ..., 3.00 for nine sizes."""
    constants = torch.tensor([[cents / 100] for cents in range(1, 301)], dtype=torch.float64)
    return [constants.repeat(1, k) for k in (2, 3, 4, 6, 7, 8, 12, 16, 32)]


def equal_sums() -> list[list[float]]:
    """Groups whose rewards are one sum of shaped rewards, added up in every order: equal but for rounding."""
    parts = [(0.1, 0.2, 0.3), (0.1, 0.2, 0.4, 0.7), (0.3, -0.1, 0.05, 1 / 3), (0.7, 0.2, 1e-3, 0.11)]
    groups = [[sum(order) for order in permutations(part)] for part in parts]
    assert all(len(set(group)) > 1 for group in groups)  # rounding does tell them apart: that is the trap
    return groups


@pytest.mark.parametrize("scale", ["group", "none"])
@pytest.mark.parametrize("ddof", [0, 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_rewards_give_exactly_zero(scale: Scale, ddof: int, dtype: torch.dtype) -> None:
    # fp32 formulas of well-known trainers gave up to 477 for such groups.
    for groups in equal_groups():
        assert not group_advantages(groups.to(dtype), scale=scale, ddof=ddof, eps=1e-9).any()
        assert dead_groups(groups).all()


@pytest.mark.parametrize("scale", ["group", "none"])
def test_sums_that_are_equal_but_for_rounding_give_exactly_zero(scale: Scale) -> None:
    for group in equal_sums():
        assert set(advantages(group, scale=scale, ddof=1, eps=1e-9)) == {0.0}, group


def random_rewards() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.rand(20, 8, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("constant", [-3.0, 0.1, 100.0])
@pytest.mark.parametrize("scale", ["group", "none"])
def test_adding_a_constant_to_a_group_changes_nothing(constant: float, scale: Scale) -> None:
    plain = group_advantages(random_rewards(), scale=scale, ddof=1, eps=1e-4)
    moved = group_advantages(random_rewards() + constant, scale=scale, ddof=1, eps=1e-4)
    assert torch.allclose(moved, plain, atol=1e-9)


def test_advantages_of_a_group_sum_to_zero_and_keep_the_order_of_rewards() -> None:
    rewards = random_rewards()
    got = group_advantages(rewards, scale="group", ddof=1, eps=1e-4)
    assert got.sum(-1).abs().max() < 1e-12
    assert torch.equal(got.argsort(-1), rewards.argsort(-1))
