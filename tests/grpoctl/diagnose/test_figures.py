"""Which curves a figure has, and that long ones are thinned out by means."""

from __future__ import annotations

from typing import Any

import pytest

from grpoctl.diagnose.figures import Points, panels, thinned, updates
from tests.grpoctl.diagnose.conftest import ROWS


def test_panels_of_a_run_like_p30() -> None:
    reward, valid, kl = panels(ROWS)
    assert [panel.title for panel in (reward, valid, kl)] == ["Reward", "Valid completions", "KL to the reference"]
    assert reward.evaluation == ((0, 0.5), (9, 0.6))
    assert reward.errors == (0.02, 0.02)
    assert len(reward.train) == 8
    assert valid.marked == ((3, 0.0), (5, 0.0), (7, 0.0))
    assert [step for step, _ in reward.marked] == [3, 5, 7]
    assert kl.train[0][0] == 2  # what step 1 did not measure is no point


def test_one_value_is_no_curve_and_no_number_is_no_value() -> None:
    rows: list[dict[str, Any]] = [{"step": 1, "kl": 0.1, "loss": float("inf")}, {"step": 2, "loss": float("nan")}]
    assert panels(rows) == []
    assert panels([]) == []


def test_the_standard_deviation_over_all_advantages_stands_in_where_that_is_what_a_log_has() -> None:
    (panel,) = panels([{"step": step, "advantage/std_all": 0.006} for step in (1, 2)])
    assert panel.column == "advantage/std_all"


def test_updates_are_marked_where_they_tell_steps_apart() -> None:
    assert updates(ROWS) == (2, 4, 6)
    assert updates([{"step": step, "update": 1} for step in (1, 2)]) == ()  # every step
    assert updates([{"step": step, "update": 0} for step in (1, 2)]) == ()  # none
    assert updates([{"step": 1}, {"step": 2}]) == ()  # not known
    assert updates([{"step": step, "update": step % 2} for step in range(1, 2000)]) == ()  # too many to see


@pytest.mark.parametrize(
    ("points", "most", "expected"),
    [
        (((1, 2), (2, 4)), 2, ((1, 2), (2, 4))),
        (((1, 2), (2, 4), (3, 0), (4, 2)), 2, ((1.5, 3), (3.5, 1))),
        (((1, 3), (2, 5), (3, 1)), 2, ((1, 3), (2.5, 3))),  # bins of one and of two
    ],
)
def test_thinned(points: Points, most: int, expected: Points) -> None:
    assert thinned(points, most) == expected


def test_ten_thousand_steps_are_400_points() -> None:
    (panel,) = panels([{"step": step, "completions/valid": float(step % 2)} for step in range(1, 10_001)])
    assert len(panel.train) == 400
    assert {value for _, value in panel.train} == {0.48, 0.52}  # 12 or 13 ones among 25
    assert panel.marked == ()  # single steps cannot be seen any more
