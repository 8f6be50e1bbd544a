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


def drifting(slope: float) -> list[Row]:
    """The same, with an entropy that goes from 1.5 by `slope` a step."""
    return [{**row, "entropy": 1.5 + slope * (row["step"] or 0.0)} for row in run()]


def told(table: list[Row], beta: float | None = None) -> list[tuple[str, str, str]]:
    case = Case(rows=table, settings=Settings(beta=beta))
    return [(one.id, one.severity, one.confidence) for one in zero_kl(case)]


MISMATCH, NO_UPDATES = ("reference-mismatch", "warning", "moderate"), ("no-updates", "warning", "moderate")


@pytest.mark.parametrize(
    ("table", "beta", "expected"),
    [
        (run(), 0.04, [NO_UPDATES]),
        (run(entropy=1.2), 0.04, [("no-updates", "warning", "strong")]),  # a second column that did not move
        (run(), None, [("no-updates", "info", "weak")]),  # or nobody computes it
        (run(rise=0.5), 0.04, [MISMATCH]),
        (run(rise=-0.2), 0.04, [("reference-mismatch", "info", "weak")]),  # it moved, or the prompts changed
        (run(rise=0.5), None, [("reference-mismatch", "info", "weak")]),
        (run(rise=0.5, learning_rate=1e-6), 0.04, [MISMATCH]),  # it learned, whatever the rate
        (run(), 0.0, []),  # nobody computes it
        (run(19, entropy=1.2), 0.04, [NO_UPDATES]),
        (run(9), 0.04, []),
        (drifting(-0.02), 0.04, [("reference-mismatch", "info", "weak")]),
        (drifting(-0.002), 0.04, [("no-updates", "warning", "strong")]),  # 4 % is no other policy
        ([{**row, "learning_rate": 1e-9} for row in drifting(0.02)], 0.04, []),  # longer prompts at a tiny rate
        (run(kl=1e-9), 0.04, []),  # something moved
        (run(learning_rate=1e-6), 0.04, []),  # too small a rate for bf16: learning-rate's
        (run(learning_rate=0.0), 0.04, []),
        (run(grad_norm=0.0), 0.04, []),  # no-gradient's
        (run(grad_norm=None), 0.04, []),  # whether there is a gradient nobody knows
        (run(kl=None), 0.04, []),
        ([{name: value for name, value in row.items() if name != "reward/mean"} for row in run()], 0.04, []),
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
    fell: list[Row] = [{**row, "entropy": 1.1 - 0.1 * (row["step"] or 0.0)} for row in run(8)]
    assert [one.id for one in zero_kl(Case(rows=fell, averaged_over=25))] == ["reference-mismatch"]
