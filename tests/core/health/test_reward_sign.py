"""A flipped sign by the curves alone."""

from __future__ import annotations

import pytest

from core.health.case import Case
from core.health.finding import Row
from core.health.reward_sign import reward_sign

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
        [("reward-sign", "error", "moderate")] if found else []
    )


def test_three_steps_are_too_few_and_a_late_evaluation_is_of_another_policy() -> None:
    assert reward_sign(mirror(-0.55, 0.55, steps=3)) == ()
    late = mirror(-0.55, 0.55)
    assert reward_sign(Case(rows=[{**late.rows[0], "step": 4}, *late.rows[1:]])) == ()


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


@pytest.mark.parametrize(
    "case",
    [
        falling(0.01),
        falling(-0.0001),  # no more than chance
        falling(-0.01, kl=-1e-4),  # the policy comes back to its start
        falling(-0.01, **{"rollout/logprob_gap": 1.0}),  # samples that are not the policy's
    ],
)
def test_what_else_makes_a_reward_fall_or_does_not(case: Case) -> None:
    assert reward_sign(case) == ()
