"""Intervals, a line by least squares, and chances of a normal law, each against a number worked out on paper."""

from __future__ import annotations

import math

import pytest

from core.health.finding import Row
from core.health.statistics import (
    chance_above,
    chance_beyond,
    cluster_df,
    clustered_se,
    mean,
    mean_interval,
    sample_sd,
    series,
    shown_p,
    shown_z,
    t_quantile,
    t_tail,
    told_z,
    trend,
    wilson,
)


@pytest.mark.parametrize(
    ("p", "df", "quantile"),
    [
        (0.975, 1, 12.706204736),  # tan(pi * 0.475)
        (0.975, 2, 4.302652730),  # 0.95 * sqrt(2 / (1 - 0.95^2))
        (0.975, 3, 3.182446305),
        (0.975, 4, 2.776445105),
        (0.975, 5, 2.570581836),
        (0.975, 9, 2.262157163),
        (0.975, 10, 2.228138852),
        (0.975, 30, 2.042272456),
        (0.975, 120, 1.979930405),
        (0.95, 7, 1.894578605),
        (0.995, 3, 5.840909310),
        (0.025, 3, -3.182446305),
        (0.75, 1, 1.0),  # Cauchy: its quartile
        (0.5, 8, 0.0),
        (0.975, 2.5, 3.574654842),  # Welch needs fractions; this one is scipy.stats.t.ppf's
    ],
)
def test_t_quantile_is_the_tables(p: float, df: float, quantile: float) -> None:
    assert t_quantile(p, df) == pytest.approx(quantile, abs=1e-6)


@pytest.mark.parametrize("df", [1.0, 2.0, 3.7, 40.0, 5000.0])
@pytest.mark.parametrize("p", [0.6, 0.9, 0.975, 0.9995])
def test_quantile_undoes_the_tail(p: float, df: float) -> None:
    assert t_tail(t_quantile(p, df), df) == pytest.approx(1 - p, rel=1e-8)


@pytest.mark.parametrize(("p", "df"), [(0.0, 3), (1.0, 3), (1.5, 3), (0.9, 0)])
def test_t_quantile_refuses(p: float, df: float) -> None:
    with pytest.raises(ValueError, match="allowed"):
        t_quantile(p, df)


@pytest.mark.parametrize(
    ("values", "sd"),
    [
        ([5.0], None),
        ([1.0, 3.0], math.sqrt(2)),  # deviations -1, 1: sqrt(2 / 1)
        ([1.0, 2.0, 3.0], 1.0),  # sqrt((1 + 0 + 1) / 2)
        ([0.95, 0.95, 0.95], 0.0),  # exactly: 3 * 0.95 / 3 is not 0.95 in binary
    ],
)
def test_sample_sd(values: list[float], sd: float | None) -> None:
    assert sample_sd(values) == (None if sd is None else pytest.approx(sd, abs=0 if sd == 0 else 1e-12))


def test_the_error_of_a_mean_over_clusters() -> None:
    """1 and 2 beside 3 and 4: cluster means 1.5 and 3.5, sd sqrt 2, error 1. One value each: the usual error."""
    values = [1.0, 2.0, 3.0, 4.0]
    assert clustered_se(values, ["a", "a", "b", "b"]) == pytest.approx(1.0)
    assert clustered_se(values, ["a", "b", "c", "d"]) == pytest.approx((sample_sd(values) or 0.0) / 2)
    # Clusters of 3 and 1: sums of deviations -1.5 and 1.5, sqrt(2 * 4.5) / 4.
    assert clustered_se(values, ["a", "a", "a", "b"]) == pytest.approx(0.75)
    assert clustered_se(values, ["a"] * 4) is None
    assert [cluster_df([2, 2]), cluster_df([1] * 5), cluster_df([1, 3])] == [1, 4, pytest.approx(0.6)]


def test_mean_interval() -> None:
    # mean 2, sd 1, standard error 1 / sqrt(3) = 0.577350, t(0.975, 2) = 4.302653: 2 -+ 2.484138
    estimate = mean_interval([1.0, 2.0, 3.0])
    assert estimate.mean == 2.0
    assert estimate.n == 3
    assert estimate.interval == pytest.approx((-0.484138, 4.484138), abs=1e-6)


def test_one_value_has_no_interval() -> None:
    estimate = mean_interval([0.4])
    assert (estimate.mean, estimate.interval, estimate.n) == (0.4, None, 1)


def test_no_value_has_no_mean() -> None:
    with pytest.raises(ValueError, match="no values"):
        mean([])


@pytest.mark.parametrize(
    ("share", "n", "low", "high"),
    [
        (0.5, 100, 0.403832, 0.596168),  # 0.5 -+ z sqrt(0.25 / 100 + z^2 / 40000) / (1 + z^2 / 100)
        (0.0, 10, 0.0, 0.277533),  # z^2 / (10 + z^2)
        (1.0, 10, 0.722467, 1.0),
        (0.2, 10, 0.056682, 0.509838),
    ],
)
def test_wilson(share: float, n: float, low: float, high: float) -> None:
    assert wilson(share, n) == (pytest.approx(low, abs=1e-6), pytest.approx(high, abs=1e-6))


@pytest.mark.parametrize(("share", "n"), [(-0.1, 5), (1.1, 5), (0.5, 0)])
def test_wilson_refuses(share: float, n: float) -> None:
    with pytest.raises(ValueError, match="allowed"):
        wilson(share, n)


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


def test_standard_errors_are_told_to_a_hundred() -> None:
    assert [told_z(z) for z in (-4.2, -2.4e16, math.inf)] == [-4.2, -100.0, 100.0]
    assert [shown_z(z) for z in (-4.2, -2.4e16)] == ["-4.2 standard errors", "beyond -100 standard errors"]
