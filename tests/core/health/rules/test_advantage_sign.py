"""A flipped sign, or another order: by advantages computed again, and by the curves alone."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from core.health.case import Case, Sample, Settings
from core.health.examine import examine
from core.health.finding import Row
from core.health.rules.advantage_sign import advantage_mismatch, reward_sign
from core.health.rules.validation import overfitting

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


WAVE = [0.05, -0.05, 0.0, 0.02, -0.02]


def mirror(paid: float, evaluated: float, steps: int = 8) -> Case:
    start: Row = {"step": 0, "eval/reward": evaluated, "eval/reward_se": 0.01}
    rows: list[Row] = [{"step": i, "reward/mean": paid + WAVE[i % 5]} for i in range(1, steps + 1)]
    return Case(rows=[start, *rows])


@pytest.mark.parametrize(
    ("paid", "evaluated", "found"),
    [(-0.55, 0.55, True), (0.55, -0.55, True), (0.55, 0.55, False), (-0.2, 0.55, False), (0.0, 0.0, False)],
)
def test_paid_minus_what_the_evaluation_pays(paid: float, evaluated: float, found: bool) -> None:
    findings = reward_sign(mirror(paid, evaluated))
    assert [(one.id, one.severity, one.confidence) for one in findings] == (
        [("reward-sign", "warning", "moderate")] if found else []  # prompts may differ so: no more than a warning
    )


def test_three_steps_are_too_few_and_a_late_evaluation_is_of_another_policy() -> None:
    assert reward_sign(mirror(-0.55, 0.55, steps=3)) == ()
    late = mirror(-0.55, 0.55)
    assert reward_sign(Case(rows=[{**late.rows[0], "step": 4}, *late.rows[1:]])) == ()


def test_an_update_between_makes_it_another_policy() -> None:
    """An SFT stage between the evaluation and the steps; at a learning rate of 0 it would have changed nothing."""
    case = mirror(-0.55, 0.55)
    for rate, found in ((1e-4, False), (0.0, True)):
        supervised: Row = {"step": 1, "stage": 0, "update": 1, "learning_rate": rate}
        steps: list[Row] = [{**row, "step": (row["step"] or 0) + 1, "stage": 1} for row in case.rows[1:]]
        assert bool(reward_sign(Case(rows=[case.rows[0], supervised, *steps], settings=Settings(stage=1)))) == found


def apart(paid: float, evaluated: float, *, start: tuple[float, float] = (-0.3, 0.3), evaluations: int = 6) -> Case:
    """Sixty steps: the reward that is paid and every tenth step's evaluation, from `start` on, with these slopes."""
    rows: list[Row] = [{"step": i, "reward/mean": start[0] + paid * i + WAVE[i % 5] / 2} for i in range(1, 61)]
    asked = {10 * (6 - i) for i in range(evaluations)}
    return Case(
        rows=[
            {**row, "eval/reward": start[1] + evaluated * step, "eval/reward_se": 0.01} if step in asked else row
            for row in rows
            if (step := row["step"] or 0)
        ]
    )


@pytest.mark.parametrize(
    ("case", "found"),
    [
        (apart(0.004, -0.004), True),
        (apart(0.004, -0.004, evaluations=3), True),
        (apart(0.004, -0.004, evaluations=2), False),
        (apart(0.004, 0.004), False),  # both rise: harder training prompts
        (apart(0.0, 0.0), False),  # mirrored levels alone
        (apart(0.004, -0.004, start=(0.1, 0.3)), False),  # apart and not mirrored: overfitting, hacking
        (apart(-0.004, 0.004), False),
    ],
)
def test_evaluations_that_fall_along_minus_the_reward(case: Case, found: bool) -> None:
    findings = reward_sign(case)
    assert [(one.severity, one.confidence) for one in findings] == ([("error", "moderate")] if found else [])


@pytest.mark.parametrize(
    ("paid", "ids"),
    [
        (-0.5, {"reward-sign"}),  # minus the evaluations: what the policy earns falls on training prompts, too
        (0.1, {"overfitting", "reward-hacking"}),  # the same numbers; texts tell
    ],
)
def test_minus_the_reward_that_rises_is_no_overfitting(paid: float, ids: set[str]) -> None:
    case = apart(0.006, -0.006, start=(paid, 0.5))
    assert overfitting(case)  # by itself that rule sees a reward that rises, and evaluations that fall
    assert {finding.id for finding in examine(case)} & {"reward-sign", "overfitting", "reward-hacking"} == ids


def test_minus_the_reward_of_samples_is_no_overfitting() -> None:
    rising = apart(0.006, -0.006, start=(0.1, 0.5))  # not mirrored: the samples' advantages say it
    flipped = case_of("aabb", REWARDS, [-value for value in RIGHT])
    found = {finding.id for finding in examine(replace(flipped, rows=rising.rows))}
    assert ("reward-sign" in found, "overfitting" in found) == (True, False)


def falling(slope: float, kl: float = 1e-4, **more: float) -> Case:
    rows: list[Row] = [
        {"step": i, "update": 1, "reward/mean": 0.6 + slope * i + WAVE[i % 5], "reward/std": 0.3, "kl": kl * i, **more}
        for i in range(1, 31)
    ]
    return Case(rows=rows)


def test_a_reward_that_falls_while_the_policy_learns() -> None:
    (finding,) = reward_sign(falling(-0.01))
    assert (finding.id, finding.severity, finding.confidence) == ("reward-sign", "warning", "weak")
    assert finding.evidence["lost"] == pytest.approx(0.29, abs=0.02)  # 29 steps of 0.01
    assert finding.evidence["kl_correlation"] == 1.0


def test_a_curriculum_is_no_flip() -> None:
    """The training reward falls because prompts get harder; evaluations say what the policy does."""
    case = falling(-0.01)
    for slope, silent in ((0.002, True), (-0.002, False)):
        rows = [{**row, "eval/reward": 0.5 + slope * (row["step"] or 0)} for row in case.rows]
        assert (reward_sign(Case(rows=rows)) == ()) == silent


def test_a_reward_that_wanders_is_no_flip() -> None:
    """Autocorrelated rewards (AR(1), rho 0.9) have slopes of many apparent standard errors."""
    drawn, found = random.Random(0), 0
    for _ in range(100):
        level, rows = 0.0, list[Row]()
        for step in range(1, 61):
            level = 0.9 * level + drawn.gauss(0, 0.05)
            rows.append({"step": step, "update": 1, "reward/mean": 0.5 + level, "reward/std": 0.3, "kl": 1e-4 * step})
        found += bool(reward_sign(Case(rows=rows)))
    assert found <= 1  # 15 of 100 if steps were taken to be independent


@pytest.mark.parametrize(
    "case",
    [
        falling(0.01),
        falling(-0.0001),  # no more than chance
        falling(-0.01, kl=-1e-4),  # the policy comes back to its start
        Case(rows=[{**row, "completions/valid": 0.9 if i < 20 else 0.0} for i, row in enumerate(falling(-0.01).rows)]),
        falling(-0.01, **{"rollout/logprob_gap": 1.0}),  # samples that are not the policy's
    ],
)
def test_what_else_makes_a_reward_fall_or_does_not(case: Case) -> None:
    assert reward_sign(case) == ()
