"""Advantages computed again from rewards: a sign, an order, or neither."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from core.health.advantage_mismatch import advantage_mismatch
from core.health.case import Case, Sample
from core.health.settings import Settings

MEAN_ONLY = Settings(
    num_generations=2, transform="none", baseline="group", scale_rewards="none", ddof=0, eps=1e-8, std_floor=0.0,
    weighting="rows", reshaped=False, ranks_break_ties=False,
)  # fmt: skip


def case_of(
    groups: str,
    rewards: Sequence[float | None],
    recorded: Sequence[float],
    settings: Settings = MEAN_ONLY,
    steps: int = 3,
) -> Case:
    """Steps of equal samples, a letter of `groups` for each completion's prompt."""
    samples = tuple(
        Sample(step=step, row=row, group=group, reward=reward, advantage=advantage)
        for step in range(1, steps + 1)
        for row, (group, reward, advantage) in enumerate(zip(groups, rewards, recorded, strict=True))
    )
    return Case(rows=[{"step": step} for step in range(steps + 1)], samples=samples, settings=settings)


# Two groups of two: a has 1 and 0, mean 0.5; b has 0.6 and 0.2, mean 0.4.
REWARDS = [1.0, 0.0, 0.6, 0.2]
RIGHT = [0.5, -0.5, 0.2, -0.2]


def test_the_rewards_own_advantages_are_fine() -> None:
    assert advantage_mismatch(case_of("aabb", REWARDS, RIGHT)) == ()
    assert advantage_mismatch(case_of("aabb", REWARDS, [value + 1e-7 for value in RIGHT])) == ()


@pytest.mark.parametrize(
    ("settings", "recorded"),
    [
        ({"scale_rewards": "group"}, [1.0, -1.0, 1.0, -1.0]),  # 0.5 / 0.5 and 0.2 / 0.2
        ({"transform": "rank"}, [0.5, -0.5, 0.5, -0.5]),
        ({"baseline": "leave_one_out"}, [1.0, -1.0, 0.4, -0.4]),  # 2 / (2 - 1) times the deviation
        ({"baseline": "batch"}, [0.55, -0.45, 0.15, -0.25]),  # the mean of all is 0.45
        ({"advantage_clip": 0.3}, [0.3, -0.3, 0.2, -0.2]),
    ],
)
def test_the_runs_normaliser_is_used(settings: dict[str, object], recorded: list[float]) -> None:
    changed = replace(MEAN_ONLY, **settings)  # type: ignore[arg-type]
    assert advantage_mismatch(case_of("aabb", REWARDS, recorded, changed)) == ()
    assert advantage_mismatch(case_of("aabb", REWARDS, RIGHT, changed)) != ()


def test_a_missing_reward_has_no_advantage_and_is_in_no_mean() -> None:
    assert advantage_mismatch(case_of("aabb", [1.0, None, 0.6, 0.2], [0.0, 0.0, 0.2, -0.2])) == ()


@pytest.mark.parametrize(
    ("groups", "recorded", "id_", "said"),
    [
        ("aabb", [-0.5, 0.5, -0.2, 0.2], "reward-sign", "minus what the rewards give"),
        # The rows of a are 0 and 2, those of b 1 and 3; cut every two rows: (1, 0) and (0.6, 0.2).
        ("abab", RIGHT, "group-order", "every K neighbours"),
        # Cut 0, 2 and 1, 3: means 0.8 and 0.1.
        ("aabb", [0.2, -0.1, -0.2, 0.1], "group-order", "every P-th"),
        # The right ones, read down the columns of [[0.5, -0.5], [0.2, -0.2]].
        ("aabb", [0.5, 0.2, -0.5, -0.2], "group-order", "rows and columns"),
        ("aabb", [0.2, -0.2, 0.5, -0.5], "group-order", "its neighbour's"),
        ("aabb", [0.5, -0.5, 0.2, -0.3], "advantage-mismatch", "-0.3, and -0.2 by its rewards"),
    ],
)
def test_what_was_done_to_them(groups: str, recorded: list[float], id_: str, said: str) -> None:
    (finding,) = advantage_mismatch(case_of(groups, REWARDS, recorded))
    assert (finding.id, finding.severity) == (id_, "error")
    assert finding.confidence == ("strong" if id_ == "advantage-mismatch" else "certain")
    assert said in finding.summary
    assert (finding.evidence["wrong_steps"], finding.evidence["steps"]) == (3, 3)


def test_an_explanation_must_hold_on_every_step() -> None:
    flipped = case_of("aabb", REWARDS, [-value for value in RIGHT])
    sound = tuple(replace(one, step=3, advantage=RIGHT[one.row or 0]) for one in flipped.samples if one.step == 3)
    mixed = replace(flipped, samples=tuple(one for one in flipped.samples if one.step < 3) + sound)
    (finding,) = advantage_mismatch(mixed)
    assert (finding.id, finding.evidence["wrong_steps"]) == ("advantage-mismatch", 2)


@pytest.mark.parametrize(
    "changes",
    [
        {"transform": None}, {"eps": None}, {"reshaped": None}, {"reshaped": True}, {"baseline": "running"},
        {"weighting": "tokens"}, {"num_generations": None}, {"num_generations": 4}, {"ranks_break_ties": True},
        {"dynamic_sampling": True, "baseline": "batch"},
    ],
)  # fmt: skip
def test_silent_where_the_normaliser_is_not_known_or_not_alone(changes: dict[str, object]) -> None:
    changed = replace(MEAN_ONLY, **changes)  # type: ignore[arg-type]
    assert advantage_mismatch(case_of("aabb", REWARDS, [9.0] * 4, changed)) == ()


def test_steps_that_are_not_whole_are_left_out() -> None:
    whole = case_of("aabb", REWARDS, [9.0] * 4)
    cut = replace(whole, samples=tuple(one for one in whole.samples if one.row != 1))
    assert advantage_mismatch(cut) == ()
    twice = case_of("aaaa", REWARDS, [9.0] * 4)  # one prompt twice in a step: its groups cannot be told apart
    assert advantage_mismatch(twice) == ()
