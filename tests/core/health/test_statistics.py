"""Intervals over seeds, each against a number that can be worked out on paper."""

from __future__ import annotations

import math

import pytest

from core.health.statistics import mean, mean_interval, paired, sample_sd, t_quantile, t_tail, welch, wilson


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


def test_welch() -> None:
    # a: mean 2, variance 1, n 3; b: mean 6, variance 8, n 2
    # standard error sqrt(1/3 + 8/2) = sqrt(13/3) = 2.081666
    # df = (13/3)^2 / ((1/3)^2 / 2 + 4^2 / 1) = 18.777778 / 16.055556 = 1.169550, t(0.975) = 9.082776 there
    difference = welch([1.0, 2.0, 3.0], [4.0, 8.0])
    assert difference.mean == 4.0  # b - a
    assert difference.method == "welch"
    half = 2.081666 * 9.082776
    assert difference.interval == pytest.approx((4 - half, 4 + half), rel=1e-5)


@pytest.mark.parametrize(
    ("a", "b", "interval", "method"),
    [
        ([1.0], [2.0, 3.0], None, "none"),
        ([1.0, 2.0], [3.0], None, "none"),
        ([1.0, 1.0], [3.0, 3.0], (2.0, 2.0), "welch"),  # no spread at all
    ],
)
def test_welch_at_its_edges(a: list[float], b: list[float], interval: tuple[float, float] | None, method: str) -> None:
    difference = welch(a, b)
    assert (difference.interval, difference.method) == (interval, method)


def test_welch_equals_student_for_equal_spreads() -> None:
    # Both variances 1, n 3: standard error sqrt(2/3) = 0.816497, df 4, t 2.776445
    assert welch([1.0, 2.0, 3.0], [2.0, 3.0, 4.0]).interval == pytest.approx((1 - 2.266958, 1 + 2.266958), abs=1e-6)


def test_paired_uses_common_seeds_only() -> None:
    # differences 0.5, 0.7, 0.3 (seed 7 has no partner): mean 0.5, sd 0.2, standard error 0.115470, half 0.496828
    difference = paired({0: 1.0, 1: 2.0, 2: 3.0, 7: 99.0}, {2: 3.3, 1: 2.7, 0: 1.5})
    assert difference.mean == pytest.approx(0.5)
    assert difference.method == "paired"
    assert difference.interval == pytest.approx((0.003172, 0.996828), abs=1e-6)


def test_pairing_removes_what_a_seed_does_to_both_sides() -> None:
    a, b = {0: 1.0, 1: 2.0, 2: 3.0}, {0: 1.1, 1: 2.1, 2: 3.1}
    narrow, wide = paired(a, b).interval, welch(list(a.values()), list(b.values())).interval
    assert narrow == pytest.approx((0.1, 0.1))
    assert wide is not None
    assert wide[0] < 0 < wide[1]


def test_one_pair_has_no_interval_and_none_has_no_difference() -> None:
    assert paired({0: 1.0}, {0: 2.0}).interval is None
    assert paired({0: 1.0}, {0: 2.0}).method == "none"
    with pytest.raises(ValueError, match="no values"):
        paired({0: 1.0}, {1: 2.0})


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
