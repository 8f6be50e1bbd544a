"""A schedule that ended before the run did."""

from __future__ import annotations

import pytest

from core.health.case import Case
from core.health.finding import Row
from core.health.rules.learning_rate import rate_zero


def case(used: int, still: int, **more: int) -> Case:
    rates = [1e-6] * used + [0.0] * still
    rows: list[Row] = [{"step": i, "update": 1, "learning_rate": rate} for i, rate in enumerate(rates, 1)]
    return Case(rows=rows, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("used", "still", "found"),
    [
        (50, 150, True),
        (50, 10, True),
        (50, 9, False),  # a schedule's own end
        (200, 20, False),  # 9 % of the run
        (180, 20, True),
        (0, 20, False),  # no-updates says that
    ],
)
def test_when(used: int, still: int, found: bool) -> None:
    assert bool(rate_zero(case(used, still))) == found


def test_what_is_said() -> None:
    (found,) = rate_zero(case(50, 150))
    assert (found.severity, found.evidence["first_step"], found.evidence["rows"]) == ("warning", 51, 150)
    assert "from step 51 on (150 of 200 rows; 1e-06 before)" in found.summary
    assert rate_zero(case(5, 1, averaged_over=10))  # one row of ten steps


def test_a_rate_that_comes_back_is_a_schedule() -> None:
    rows = [*case(20, 20).rows, {"step": 41, "update": 1, "learning_rate": 1e-6}]
    assert rate_zero(Case(rows=rows)) == ()
