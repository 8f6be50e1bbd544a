"""A flipped sign by the curves alone."""

from __future__ import annotations

import random

import pytest

from core.health.case import Case, Settings
from core.health.finding import Row
from core.health.rules.advantage_sign import reward_sign

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
