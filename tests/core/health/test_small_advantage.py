"""Small advantages of a z-score: a floor over nearly equal rewards, or few live groups."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.health.case import Case, Settings
from core.health.finding import Finding
from core.health.rules.advantage_size import small_advantage

Z = Settings(num_generations=5, scale_rewards="group", baseline="group", ddof=1)


def of(std: float, settings: Settings, **more: float) -> Finding | None:
    rows = [{"step": step, "advantage/std_all": std, **more} for step in range(1, 4)]
    found = small_advantage(Case(rows=rows, settings=settings))
    return found[0] if found else None


def test_plan_5_has_the_same_advantages_as_before() -> None:
    """What document 001's plan 5 would log: a z-score with a floor of 0.1, and still 0.0062."""
    finding = of(0.0062, replace(Z, std_floor=0.1))
    assert finding is not None
    assert (finding.id, finding.severity, finding.confidence) == ("small-advantage", "warning", "certain")
    assert finding.evidence["implied_reward_std"] == pytest.approx(0.00062)
    assert finding.evidence["implied_live_share"] == pytest.approx(0.0062 / 0.8**0.5)  # u = sqrt(4 / 5)
    assert finding.suggest[0] == "advantage.std_floor=0.0"


def test_a_floor_that_nobody_stated_is_a_guess() -> None:
    finding = of(0.0062, Z)
    assert finding is not None
    assert finding.confidence == "moderate"
    assert finding.evidence["std_floor"] == 0.1


def test_without_a_floor_few_groups_are_live() -> None:
    finding = of(0.0062, replace(Z, std_floor=0.0))
    assert finding is not None
    assert (finding.id, finding.confidence) == ("dead-groups", "certain")
    assert finding.evidence["implied_live_share"] == pytest.approx(0.0062 / 0.8**0.5)
    assert of(0.0062, replace(Z, std_floor=0.0), **{"groups/dead": 0.99}) is None  # known: core.health.rules.groups


@pytest.mark.parametrize(
    ("std", "settings"),
    [
        (0.3, Z),  # no more than a third of a z-score: dead groups do that
        (1.0, Z),
        (0.0062, Settings()),
        (0.0062, replace(Z, scale_rewards="none")),  # no z-score: as small as its rewards
        (0.0062, replace(Z, transform="rank")),  # core.health.rules.advantage_size
        (0.0062, replace(Z, reshaped=True)),
    ],
)
def test_what_says_nothing(std: float, settings: Settings) -> None:
    assert of(std, settings) is None


def test_completions_drawn_in_advance_are_not_drawn_again() -> None:
    offline = of(0.0062, replace(Z, std_floor=0.1, offline=True))
    online = of(0.0062, replace(Z, std_floor=0.1))
    assert offline is not None
    assert online is not None
    assert offline.suggest == ("advantage.std_floor=0.0",)
    assert online.suggest[1:] == ("dynamic_sampling.max_attempts=10", "num_generations=10")


def test_of_live_groups_only_a_floor_is_left() -> None:
    rows = [{"step": step, "advantage/std": 0.01, "groups/dead": 0.2} for step in range(1, 9)]
    (finding,) = small_advantage(Case(rows=rows, settings=replace(Z, std_floor=0.1)))
    assert finding.id == "small-advantage"
    assert "of the groups are live" not in finding.summary
    assert small_advantage(Case(rows=rows, settings=replace(Z, std_floor=0.0))) == ()
