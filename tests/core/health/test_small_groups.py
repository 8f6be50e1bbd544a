"""Groups whose size alone decides the advantages."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.health.case import Case, Settings
from core.health.finding import Row
from core.health.rules.groups import dead_groups, small_groups

Z_SCORE = Settings(num_generations=2, baseline="group", scale_rewards="group", ddof=0, eps=1e-8)


def case(settings: Settings, *steps: Row) -> Case:
    return Case(rows=[{"step": i, **row} for i, row in enumerate(steps, 1)], settings=settings)


STEPS: tuple[Row, ...] = ({"groups/dead": 0.5}, {"groups/dead": 1.0}, {})


@pytest.mark.parametrize(
    ("change", "severity"),
    [
        ({}, "warning"),
        ({"ddof": 1}, "warning"),
        ({"ddof": None}, "warning"),
        ({"eps": 1e-4}, "warning"),  # TRL's and ours
        ({"transform": "rank"}, "warning"),  # the ranks of two, z-scored
        ({"num_generations": 3}, "info"),
        ({"num_generations": 4}, None),
        ({"num_generations": 8}, None),
        ({"num_generations": None}, None),
        ({"scale_rewards": "none"}, None),
        ({"scale_rewards": "batch"}, None),
        ({"scale_rewards": None}, None),  # nothing is known of it
        ({"baseline": "leave_one_out"}, None),
        ({"std_floor": 0.1}, None),  # a small difference has a small advantage again
        ({"eps": 0.1}, None),
    ],
)
def test_when(change: dict[str, object], severity: str | None) -> None:
    found = small_groups(case(replace(Z_SCORE, **change), *STEPS))  # type: ignore[arg-type]
    assert [(one.id, one.severity, one.confidence) for one in found] == (
        [("small-groups", severity, "certain")] if severity else []
    )


@pytest.mark.parametrize(
    ("ddof", "size", "words"),
    [
        # rewards 1 and 0: mean 0.5, deviations 0.5; std sqrt((0.25 + 0.25) / 2) = 0.5, or sqrt(0.5 / 1) = 0.7071
        (0, 1.0, "0 or ±1,"),
        (1, 0.7071, "0 or ±0.7071,"),
        (None, None, "0 or ±1 (or ±0.7071),"),
    ],
)
def test_the_size_of_an_advantage_of_two(ddof: int | None, size: float | None, words: str) -> None:
    (found,) = small_groups(case(replace(Z_SCORE, ddof=ddof), *STEPS))
    assert found.evidence.get("size") == (None if size is None else pytest.approx(size, abs=1e-4))
    assert words in found.summary
    assert found.evidence["dead"] == 0.75  # of the two steps that say it
    assert found.evidence["dead_at_pass_rate_half"] == 0.5  # both right or both wrong: 1/4 + 1/4
    assert found.suggest == ("num_generations=8",)
    assert found.decider is not None
    assert found.decider.expects == ("groups/dead < 0.75",)


@pytest.mark.parametrize(("seen", "found"), [(1.0, True), (0.99, True), (0.0, True), (0.6, False), (1.2, False)])
def test_advantages_of_another_size_were_made_otherwise(seen: float, found: bool) -> None:
    assert bool(small_groups(case(Z_SCORE, {"advantage/max_abs": 0.0}, {"advantage/max_abs": seen}))) == found


def test_a_run_without_a_step_has_no_advantages() -> None:
    assert small_groups(case(Z_SCORE)) == ()


def test_it_is_not_the_cause_where_the_rollout_is() -> None:
    """An update, the collapse it leaves, and so on: steps heal without an update (test_rollout_mode)."""
    tied: tuple[Row, ...] = ({"update": 1, "completions/valid": 0.8}, {"update": 0, "completions/valid": 0.0}) * 20
    (found,) = small_groups(case(Z_SCORE, *tied, {"update": 0, "completions/valid": 0.8}))
    assert "not what made the steps collapse" in found.summary
    assert found.evidence["explains_the_collapse"] == "no: see rollout-mode"
    (alone,) = small_groups(case(Z_SCORE, *STEPS))
    assert "collapse" not in alone.summary
    assert "explains_the_collapse" not in alone.evidence


def test_one_report_asks_for_one_size() -> None:
    # Pass rate 0.95, alike: 90.5 % of the pairs are dead. 0.95^8 + 0.05^8 = 66 %, 0.95^16 = 44 %: half teach at 16.
    row: Row = {"groups/dead": 0.905, "reward/mean": 0.95, "reward/std": (0.95 * 0.05) ** 0.5}
    both = case(Z_SCORE, *[row] * 20)
    (dead,), (small,) = dead_groups(both), small_groups(both)
    assert small.suggest == dead.suggest == ("num_generations=16",)
    assert small.decider is not None
    assert small.decider.overrides == small.suggest
    (alone,) = small_groups(case(Z_SCORE, *STEPS))
    assert alone.suggest == ("num_generations=8",)
