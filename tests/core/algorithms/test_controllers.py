"""Controllers: one step by hand, and that repeated steps go the right way."""

from __future__ import annotations

import pytest

from core.algorithms.controllers import adaptive_entropy_coef, applied_entropy_coef, proportional_beta, threshold_beta


@pytest.mark.parametrize(
    ("kl", "expected"),
    [
        # target 0.1, horizon 1000, 100 samples: beta * (1 + error * 0.1), error within +-0.2.
        (0.10, 1.0),
        (0.11, 1.01),  # error 0.1
        (0.09, 0.99),
        (0.50, 1.02),  # error 4, bounded at 0.2
        (0.00, 0.98),
        (-1.0, 0.98),  # k1 may be negative
    ],
)
def test_proportional_beta(kl: float, expected: float) -> None:
    assert proportional_beta(1.0, kl, target=0.1, horizon=1000, samples=100) == pytest.approx(expected)
    assert proportional_beta(0.04, kl, target=0.1, horizon=1000, samples=100) == pytest.approx(0.04 * expected)


@pytest.mark.parametrize(
    ("kl", "expected"), [(0.2, 0.15), (0.1, 0.1), (0.05, 0.1), (0.01, 0.1), (0.005, 0.1 / 1.5), (0.0, 0.1 / 1.5)]
)
def test_threshold_beta(kl: float, expected: float) -> None:
    assert threshold_beta(0.1, kl) == pytest.approx(expected)


def test_threshold_beta_reads_its_bounds() -> None:
    assert threshold_beta(1.0, 0.05, high=0.04, low=0.0, factor=2.0) == 2.0
    assert threshold_beta(1.0, 0.05, high=1.0, low=0.06, factor=2.0) == 0.5


@pytest.mark.parametrize(
    ("coef", "entropy", "expected"),
    [
        (0.100, 0.10, 0.105),  # too certain: explore more
        (0.100, 0.20, 0.105),  # at the target counts as below, as in TRL
        (0.100, 0.30, 0.095),
        (0.998, 0.10, 1.000),  # never above high
        (0.003, 0.30, 0.000),  # never below low
    ],
)
def test_adaptive_entropy_coef(coef: float, entropy: float, expected: float) -> None:
    got = adaptive_entropy_coef(coef, entropy, target=0.2, delta=0.005, low=0.0, high=1.0)
    assert got == pytest.approx(expected)


@pytest.mark.parametrize(("entropy", "expected"), [(0.1, 0.3), (0.2, 0.3), (0.21, 0.0), (None, 0.0)])
def test_the_coefficient_acts_below_the_target_only(entropy: float | None, expected: float) -> None:
    assert applied_entropy_coef(0.3, entropy, target=0.2) == expected
