"""A line by least squares, and chances of a normal law, against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest

from core.health.finding import Row
from core.health.statistics import chance_above, chance_beyond, series, shown_p, trend


def test_a_slope_worked_by_hand() -> None:
    # x = 0 ... 7, mean 3.5, sum (x - 3.5)^2 = 2 (3.5^2 + 2.5^2 + 1.5^2 + 0.5^2) = 42.
    # y = 0 0 0 0 1 1 1 1: sum (x - 3.5) y = 0.5 + 1.5 + 2.5 + 3.5 = 8, slope 8 / 42.
    # Sum (y - 1/2)^2 = 2, of which the line takes 8^2 / 42: left 2 - 64 / 42 = 20 / 42; se = sqrt(20 / 42 / 6 / 42).
    found = trend([(float(x), float(x > 3)) for x in range(8)])
    assert found is not None
    assert found.slope == pytest.approx(8 / 42)
    assert found.se == pytest.approx(math.sqrt(20 / 42 / 6 / 42))
    assert found.z == pytest.approx(found.slope / found.se)
    falling = trend([(float(x), -float(x > 3)) for x in range(8)])
    assert falling is not None
    assert falling.z == pytest.approx(-found.z)


@pytest.mark.parametrize(
    ("points", "z"),
    [
        ([(float(x), 2.0 * x) for x in range(8)], math.inf),  # on a line: no noise at all
        ([(float(x), -2.0 * x) for x in range(8)], -math.inf),
        ([(float(x), 3.0) for x in range(8)], 0.0),
    ],
)
def test_points_on_a_line(points: list[tuple[float, float]], z: float) -> None:
    found = trend(points)
    assert found is not None
    assert found.z == z


def test_too_few_points_have_no_trend() -> None:
    assert trend([(float(x), float(x)) for x in range(7)]) is None
    assert trend([(1.0, float(x)) for x in range(8)]) is None  # all of one step


@pytest.mark.parametrize("size", [1e155, 1e308])
def test_numbers_whose_squares_overflow_have_no_trend(size: float) -> None:
    assert trend([(float(x), size * (-1) ** x) for x in range(8)]) is None
    assert trend([(float(x), 1e90 * x) for x in range(8)]) is not None
    assert series([{"step": 1, "kl": size}, {"step": 2, "kl": -size}], "kl") == []


def test_a_series_has_what_is_a_number() -> None:
    rows: list[Row] = [{"step": 1, "kl": 0.5}, {"step": 2}, {"step": 3, "kl": None}, {"step": 4, "kl": math.nan}]
    assert series(rows, "kl") == [(1.0, 0.5)]


def test_chances() -> None:
    assert chance_above(0.0) == 0.5
    assert chance_above(1.6448536269514722) == pytest.approx(0.05)  # the 5 % quantile of every table
    assert chance_above(-1.6448536269514722) == pytest.approx(0.95)
    assert chance_beyond(-1.959963984540054) == chance_beyond(1.959963984540054) == pytest.approx(0.05)


def test_a_p_as_a_sentence_has_it() -> None:
    assert [shown_p(p) for p in (0.03, 2.6e-5, 1e-13, 0.0)] == ["p = 3e-02", "p = 3e-05", "p < 1e-12", "p < 1e-12"]
