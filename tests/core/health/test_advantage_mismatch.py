"""Advantages computed again from rewards: a sign, an order, or neither."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from core.health.case import Case, Sample, Settings
from core.health.rules.advantage_sign import advantage_mismatch

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


# TRL: z-score, ddof 1, eps 1e-4. Two of a group that differ by d get +-(d/2) / (d/sqrt(2) + 1e-4).
A, B = 0.5 / (2**-0.5 + 1e-4), 0.2 / (0.4 * 2**-0.5 + 1e-4)
TRL = replace(MEAN_ONLY, scale_rewards="group", ddof=1, eps=1e-4)


@pytest.mark.parametrize("scale", ["group", None])
@pytest.mark.parametrize(
    ("recorded", "id_"),
    [
        ([A, -A, B, -B], None),
        ([-A, A, -B, B], "reward-sign"),
        ([B, -B, A, -A], "group-order"),
    ],
)
def test_a_log_that_does_not_say_its_scale(scale: str | None, recorded: list[float], id_: str | None) -> None:
    case = case_of("aabb", REWARDS, recorded, replace(TRL, scale_rewards=scale))
    assert [one.id for one in advantage_mismatch(case)] == ([] if id_ is None else [id_])
    assert advantage_mismatch(case_of("aabb", REWARDS, RIGHT, replace(TRL, scale_rewards=None))) == ()  # mean only


@pytest.mark.parametrize("recorded", [[0.9, -0.9, 0.9, -0.9], [-A, A, -B, -B]])
def test_what_nothing_explains_is_no_finding_where_the_scale_is_a_guess(recorded: list[float]) -> None:
    assert advantage_mismatch(case_of("aabb", REWARDS, recorded, replace(TRL, scale_rewards=None))) == ()
    assert [one.id for one in advantage_mismatch(case_of("aabb", REWARDS, recorded, TRL))] == ["advantage-mismatch"]
    two = case_of("aabb", REWARDS, [-A, A, -B, B], replace(TRL, scale_rewards=None), steps=2)
    assert advantage_mismatch(two) == ()  # an accident on two steps is possible


@pytest.mark.parametrize(
    ("rewards", "recorded", "wrong"),
    [
        ([0.2, 0.2, 1.0, 0.0], [1.5e-4, -1.5e-4, A, -A], False),  # float32's 0.2: rounding / eps
        ([0.2, 0.2, 1.0, 0.0], [1.5e-2, -1.5e-2, A, -A], True),  # more than 1e-6 x 0.2 / 1e-4 = 2e-3
        ([1000.0, 999.0, 1.0, 0.0], [A + 5e-4, -A - 5e-4, A, -A], False),  # 1e-6 x 1000 / 0.5 = 2e-3
        ([1000.0, 999.0, 1.0, 0.0], [A, -A, A + 5e-4, -A - 5e-4], True),  # 1e-6 x 1 / 0.5 = 2e-6
    ],
)
def test_the_rounding_of_float32_is_no_fault(rewards: list[float], recorded: list[float], wrong: bool) -> None:
    assert bool(advantage_mismatch(case_of("aabb", rewards, recorded, TRL))) == wrong


def test_a_step_whose_rewards_are_not_known_is_left_out() -> None:
    assert advantage_mismatch(case_of("aabb", [None] * 4, RIGHT)) == ()  # of several functions no sum is known


def test_over_a_batch_a_step_with_an_evaluation_is_left_out() -> None:
    case = case_of("aabb", REWARDS, [9.0] * 4, replace(TRL, scale_rewards="batch"))
    evaluated = replace(case, rows=[{**row, "eval/reward": 0.5} for row in case.rows])
    assert advantage_mismatch(case) != ()
    assert advantage_mismatch(evaluated) == ()


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
