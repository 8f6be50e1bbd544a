"""Train reward up, held-out reward down: found where both are significant, and only then."""

from __future__ import annotations

import pytest

from core.health.case import Case
from core.health.finding import Row
from core.health.rules.validation import overfitting


def run(train: float, evals: list[float], se: float = 0.02) -> Case:
    """100 steps whose reward/mean moves by `train` in all, around it a zigzag of 0.1; evaluations evenly between."""
    rows: list[Row] = [{"step": 0, "eval/reward": evals[0], "eval/reward_se": se}]
    for step in range(1, 101):
        row: dict[str, float | None] = {"step": step, "reward/mean": 0.4 + train * step / 100 + 0.1 * (-1) ** step}
        if step * (len(evals) - 1) % 100 == 0:
            row |= {"eval/reward": evals[step * (len(evals) - 1) // 100], "eval/reward_se": se}
        rows.append(row)
    return Case(rows=rows)


FALLS = [0.4, 0.6, 0.55, 0.5, 0.45]  # the best at step 25; 0.15 / (0.02 sqrt(2)) = 5.3 standard errors


@pytest.mark.parametrize(
    ("case", "found"),
    [
        (run(0.4, FALLS), True),
        (run(-0.4, FALLS), False),  # both fall: that is no overfitting
        (run(0.0, FALLS), False),
        (run(0.4, list(reversed(FALLS))), False),  # 0.45 ... 0.6 at step 75, then 0.4 on one evaluation: 25 steps
        (run(0.4, [0.4, 0.45, 0.5, 0.55, 0.6]), False),
        (run(0.4, [0.4, 0.6, 0.59, 0.58, 0.55]), False),  # 1.8 standard errors
        (run(0.4, FALLS, se=0.04), False),  # 2.7
        (run(0.4, [0.6, 0.4]), False),  # two evaluations show no turn
        (run(0.4, FALLS, se=0.0), False),
        (run(0.4, [0.4, 0.6, 0.45, 0.5, 0.55]), False),  # it comes back: (0.5 + 0.55) / 2 is above 0.45
        (run(0.4, [0.4, 0.65, 0.45, 0.5, 0.45, 0.45]), True),  # 0.475, then 0.45: lost 0.2; from one to the next 0.04
        # Evaluations that wander: from one to the next 0.1 up or down, however well each is measured.
        (run(0.4, [0.4, 0.6, 0.5, 0.4, 0.5, 0.4, 0.5, 0.4, 0.5, 0.4, 0.4]), False),
    ],
)
def test_overfitting(case: Case, found: bool) -> None:
    assert bool(overfitting(case)) == found


def test_its_numbers() -> None:
    (finding,) = overfitting(run(0.4, FALLS))
    assert (finding.id, finding.severity, finding.confidence) == ("overfitting", "warning", "moderate")
    assert (finding.evidence["best_step"], finding.evidence["best"], finding.evidence["last"]) == (25, 0.6, 0.45)
    assert finding.evidence["rise_per_step"] == pytest.approx(0.004, rel=0.05)
    # Five evaluations to choose from. The last two have 0.475: 5 x P(Z > 0.125 / 0.0283 = 4.419) = 5 x 4.95e-6.
    assert finding.evidence["p_fall"] == pytest.approx(2.47e-5, rel=0.02)
    assert finding.suggest == ("early_stopping.patience=3",)


def test_an_untrained_model_is_not_kept_by_a_stop() -> None:
    (finding,) = overfitting(run(0.4, [0.7, 0.65, 0.6, 0.5, 0.45]))
    assert (finding.evidence["best_step"], finding.suggest) == (0, ())
