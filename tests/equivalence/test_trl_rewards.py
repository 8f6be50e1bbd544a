"""Advantages and the overlong penalty equal to TRL 1.16.0's own, from rewards to advantages through its own method."""

from __future__ import annotations

import pytest
import torch

from core.algorithms.advantages import Array, advantages, dead_groups
from core.algorithms.names import Scale
from core.algorithms.shaping import overlong_penalty
from core.config import AdvantageSpec
from tests.equivalence.conftest import REWARDS, SIZE, Trl

TOLERANCE = 1e-5
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning:transformers.*")  # of TRL's use of it
NAN = float("nan")


def theirs(trl: Trl, rewards: list[float | None], size: int, scale: str) -> list[float]:
    """TRL's advantages."""
    trl.set(scale_rewards=scale, num_generations=size)
    return trl.rollout([[4, 5]] * len(rewards), rewards)["advantages"].tolist()


def ours(rewards: list[float | None], size: int, scale: Scale) -> Array:
    """Ours, in its constants: ddof 1, eps 1e-4."""
    rewards_PK = torch.tensor([NAN if r is None else r for r in rewards], dtype=torch.float64).reshape(-1, size)
    return advantages(rewards_PK, AdvantageSpec(scale_rewards=scale, ddof=1, eps=1e-4)).flatten()


GRADED = [0.0, 0.2, 0.4, 1.0, 2.5, -1.0]


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
@pytest.mark.parametrize(
    ("rewards", "size"),
    [
        (REWARDS, SIZE),
        (GRADED, 2),
        (GRADED, 3),
        (GRADED, 6),
        ([1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], 8),
        ([1.0] * 7 + [0.0] + [1.0] + [0.0] * 7, 8),  # 7/8 and 1/8: raw std of the batch 0.516
        ([1.0, None, None, None, 0.0, 1.0, None, 0.0], 4),  # one alone has no group: 0 in both
    ],
)
def test_advantages(trl: Trl, rewards: list[float | None], size: int, scale: Scale) -> None:
    assert theirs(trl, rewards, size, scale) == pytest.approx(ours(rewards, size, scale).tolist(), abs=TOLERANCE)


def test_difference_equal_rewards_are_exactly_zero_here_and_counted_so(trl: Trl) -> None:
    # 12 rewards of 0.7: TRL's mean in float32 is not 0.7, and 1e-4 is all it divides by.
    rewards: list[float | None] = [0.7] * 12
    noise = [abs(a) for a in theirs(trl, rewards, 12, "group")]
    assert 0 < max(noise) < 0.005
    assert not ours(rewards, 12, "group").any()
    assert dead_groups(torch.full((1, 12), 0.7, dtype=torch.float64)).all()
    assert trl.trainer._metrics["train"]["frac_reward_zero_std"][-1] == 0.0  # TRL's metric calls the group live


def test_overlong_penalty() -> None:
    from trl.rewards import get_soft_overlong_punishment

    lengths = list(range(1, 130))
    expected = get_soft_overlong_punishment(100, 20)([[1] * length for length in lengths])
    got = overlong_penalty(torch.tensor(lengths), max_length=100, buffer=20)
    assert got.tolist() == pytest.approx(expected, abs=1e-12)
