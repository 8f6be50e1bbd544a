"""A KL to the start that is exactly 0: other weights, the policy's own reference, or a rate that explains it."""

from __future__ import annotations

import pytest

from core.health.case import Case, Settings
from core.health.examine import examine
from core.health.finding import Row
from core.health.rules.zero_kl import zero_kl


def run(count: int = 30, *, rise: float = 0.0, **more: float | None) -> list[Row]:
    """Steps with gradients at a rate of 3e-4 and a KL of 0; the reward goes from 0.3 to 0.3 + rise, with a noise."""
    known: Row = {"kl": 0.0, "grad_norm": 0.9, "learning_rate": 3e-4}
    rewards = [0.3 + rise * step / count + 0.02 * (-1) ** step for step in range(count)]
    return [{"step": step, "reward/mean": reward, **known, **more} for step, reward in enumerate(rewards, 1)]


def told(table: list[Row], beta: float | None = None) -> list[tuple[str, str, str]]:
    case = Case(rows=table, settings=Settings(beta=beta))
    return [(one.id, one.severity, one.confidence) for one in zero_kl(case)]


@pytest.mark.parametrize(
    ("table", "beta", "expected"),
    [
        (run(), 0.04, [("no-updates", "warning", "strong")]),
        (run(), None, [("no-updates", "warning", "strong")]),
        (run(rise=0.5), 0.04, [("reference-mismatch", "warning", "moderate")]),
        (run(rise=0.5), None, [("reference-mismatch", "info", "weak")]),  # or nobody computes it
        (run(), 0.0, []),  # nobody computes it
        (run(19), 0.04, [("no-updates", "warning", "moderate")]),
        (run(9), 0.04, []),
        (
            [{**row, "entropy": 1.5 - 0.02 * row["step"]} for row in run()],
            0.04,  # type: ignore[operator]
            [("reference-mismatch", "warning", "moderate")],
        ),
        (
            [{**row, "entropy": 1.5 - 0.002 * row["step"]} for row in run()],
            0.04,  # type: ignore[operator]
            [("no-updates", "warning", "strong")],
        ),  # 4 % is no other policy
        (run(kl=1e-9), 0.04, []),  # something moved
        (run(learning_rate=1e-6), 0.04, []),  # too small a rate for bf16: learning-rate's
        (run(learning_rate=0.0), 0.04, []),
        (run(grad_norm=0.0), 0.04, []),  # no-gradient's
        (run(kl=None), 0.04, []),
    ],
)
def test_what_a_kl_of_zero_says(table: list[Row], beta: float | None, expected: list[tuple[str, str, str]]) -> None:
    assert told(table, beta) == expected


@pytest.mark.parametrize("rise", [0.0, 0.5])
def test_the_rate_is_not_called_too_small_beside_it(rise: float) -> None:
    assert "learning-rate" not in {one.id for one in examine(Case(rows=run(rise=rise), settings=Settings(beta=0.04)))}


def test_a_rate_that_bf16_rounds_away_is_still_too_small() -> None:
    slow = Case(rows=run(learning_rate=1e-6), settings=Settings(beta=0.04))
    assert "learning-rate" in {one.id for one in examine(slow)}


def test_rows_of_several_steps_count_as_so_many_updates() -> None:
    assert [one.id for one in zero_kl(Case(rows=run(6), averaged_over=10))] == ["no-updates"]
    assert zero_kl(Case(rows=run(6))) == ()
