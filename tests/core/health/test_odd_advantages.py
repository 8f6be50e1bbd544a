"""Advantages off their centre, and a spread that a moving scale does not keep near 1."""

from __future__ import annotations

import pytest

from core.health.case import Case, Settings
from core.health.finding import Row
from core.health.rules.advantage_size import odd_advantages

Z_SCORE = Settings(baseline="group", scale_rewards="group", transform="none")


def case(means: list[float], settings: Settings = Z_SCORE, *, largest: float = 2.0, std: float = 1.0) -> Case:
    rows: list[Row] = [
        {"step": i, "advantage/mean": mean, "advantage/max_abs": largest, "advantage/std": std + 0.01 * (i % 2)}
        for i, mean in enumerate(means, 1)
    ]
    return Case(rows=rows, settings=settings)


def test_a_group_baseline_leaves_a_mean_of_zero() -> None:
    assert odd_advantages(case([1e-7] * 20)) == ()
    assert odd_advantages(case([0.09] * 20)) == ()  # under 5 % of the largest, 2.0
    (found,) = odd_advantages(case([0.3, 0.5] * 10))
    assert (found.id, found.severity, found.confidence) == ("odd-advantages", "warning", "strong")
    # Mean 0.4, sd 0.1026 over 20 steps: se 0.0229.
    assert found.evidence["mean"] == pytest.approx(0.4)
    assert found.evidence["se"] == pytest.approx(0.0229, abs=1e-4)
    assert odd_advantages(case([0.5] * 9)) == ()


@pytest.mark.parametrize(
    "settings",
    [
        Settings(),
        Settings(baseline="running", scale_rewards="group"),  # moves, and its mean with it
        Settings(baseline="group", advantage_clip=1.0, scale_rewards="group"),  # cuts one tail more than the other
        Settings(baseline="group", reshaped=True, scale_rewards="group"),
    ],
)
def test_where_a_mean_is_allowed_nothing_is_said(settings: Settings) -> None:
    assert odd_advantages(case([0.4] * 20, settings)) == ()


@pytest.mark.parametrize(
    ("scale", "std", "found"),
    [
        ("running", 0.3, True),
        ("running", 3.0, True),
        ("running", 0.6, False),
        ("running", 1.8, False),
        ("group", 0.3, False),  # impossible_advantage says that
        ("none", 0.3, False),  # no scale: the spread is the rewards'
    ],
)
def test_the_spread_under_a_moving_scale(scale: str, std: float, found: bool) -> None:
    known = Settings(baseline="running", scale_rewards=scale)
    assert bool(odd_advantages(case([0.0] * 20, known, std=std))) == found


def test_of_an_unknown_scale_it_is_a_weak_hint() -> None:
    (found,) = odd_advantages(case([0.0] * 20, Settings(), std=0.006))
    assert (found.confidence, found.evidence["std"]) == ("weak", pytest.approx(0.011, abs=1e-3))
    assert odd_advantages(case([0.0] * 20, Settings(transform="rank"), std=0.006)) == ()
    imitating = [{**row, "rce/loss": 1.0} for row in case([0.0] * 20, Settings(), std=0.006).rows]
    assert odd_advantages(Case(rows=imitating)) == ()
