"""Schedules: tables, and the learning rates of transformers on a grid."""

from __future__ import annotations

from math import inf, nan, sqrt
from typing import Any, get_args

import pytest
import torch
from transformers import (
    get_constant_schedule_with_warmup,
    get_cosine_schedule_with_warmup,
    get_cosine_with_min_lr_schedule_with_warmup,
    get_linear_schedule_with_warmup,
)

from core.algorithms.schedules import (
    Shape,
    adaptive_entropy_coef,
    applied_entropy_coef,
    learning_rate,
    linear,
    plateau_factor,
    proportional_beta,
    threshold_beta,
    value,
)


@pytest.mark.parametrize(
    ("start", "end", "steps", "index", "expected"),
    [
        (0.3, 0.15, 10, 0, 0.3),
        (0.3, 0.15, 10, 1, 0.285),
        (0.3, 0.15, 10, 5, 0.225),
        (0.3, 0.15, 10, 10, 0.15),
        (0.3, 0.15, 10, 11, 0.15),
        (1.0, 2.0, 4, 3, 1.75),  # upwards too
        (1.0, 0.5, 0, 0, 0.5),  # no steps: the end at once
    ],
)
def test_linear(start: float, end: float, steps: int, index: int, expected: float) -> None:
    assert linear(start, end, steps, index) == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize(
    ("shape", "start", "end", "expected"),  # at 0, 1, 2, 3 and 4 of 4 steps, and after them
    [
        ("constant", 8.0, 1.0, [8.0, 8.0, 8.0, 8.0, 8.0, 8.0]),
        ("linear", 8.0, 0.0, [8.0, 6.0, 4.0, 2.0, 0.0, 0.0]),
        # 4 (1 + cos): cos 45 deg = 0.7071.
        ("cosine", 8.0, 0.0, [8.0, 4 + 4 * sqrt(0.5), 4.0, 4 - 4 * sqrt(0.5), 0.0, 0.0]),
        ("cosine", 0.0, 2.0, [0.0, 1 - sqrt(0.5), 1.0, 1 + sqrt(0.5), 2.0, 2.0]),
        # A factor of (1/16)^(1/4) = 1/2 a step.
        ("exponential", 16.0, 1.0, [16.0, 8.0, 4.0, 2.0, 1.0, 1.0]),
        ("exponential", 1.0, 16.0, [1.0, 2.0, 4.0, 8.0, 16.0, 16.0]),
    ],
)
def test_value(shape: Shape, start: float, end: float, expected: list[float]) -> None:
    assert [value(shape, start, end, 4, index) for index in (0, 1, 2, 3, 4, 9)] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("shape", ["linear", "cosine", "exponential"])
def test_without_steps_a_value_is_at_its_end_at_once(shape: Shape) -> None:
    assert value(shape, 3.0, 2.0, 0, 0) == 2.0


@pytest.mark.parametrize(("start", "end"), [(0.0, 1.0), (1.0, 0.0), (-1.0, -2.0)])
def test_an_exponential_needs_positive_ends(start: float, end: float) -> None:
    with pytest.raises(ValueError, match="positive"):
        value("exponential", start, end, 10, 3)


@pytest.mark.parametrize(
    ("kind", "index", "expected"),
    [
        # Warm-up of 100: index / 100 of the base.
        ("cosine", 0, 0.0),
        ("cosine", 1, 2e-8),
        ("cosine", 50, 1e-6),
        ("cosine", 100, 2e-6),
        # Then half a cosine over 200: a quarter in, (1 + cos 45 deg) / 2 = 0.85355; half in, 1/2; at the end 0.
        ("cosine", 150, 2e-6 * 0.8535533905932737),
        ("cosine", 200, 1e-6),
        ("cosine", 300, 0.0),
        ("cosine", 500, 0.0),  # and no way back up
        # 50 of 200 steps after the warm-up: three quarters; an exponential is 0.01^(1/4), then 0.01^(1/2) and 0.01.
        ("linear", 50, 1e-6),
        ("linear", 150, 1.5e-6),
        ("linear", 300, 0.0),
        ("linear", 500, 0.0),
        ("exponential", 50, 1e-6),
        ("exponential", 150, 2e-6 / sqrt(10)),
        ("exponential", 200, 2e-7),
        ("exponential", 300, 2e-8),
        ("exponential", 500, 2e-8),
        ("constant", 0, 0.0),
        ("constant", 50, 1e-6),
        ("constant", 100, 2e-6),
        ("constant", 500, 2e-6),
    ],
)
def test_learning_rate(kind: Shape, index: int, expected: float) -> None:
    got = learning_rate(2e-6, kind, index=index, warmup_steps=100, total_steps=300)
    assert got == pytest.approx(expected, rel=1e-12, abs=1e-20)


@pytest.mark.parametrize("kind", get_args(Shape))
def test_with_a_warm_up_index_0_is_exactly_0(kind: Shape) -> None:
    assert learning_rate(2e-6, kind, index=0, warmup_steps=1, total_steps=10) == 0.0
    assert learning_rate(2e-6, kind, index=0, warmup_steps=0, total_steps=10) == 2e-6


@pytest.mark.parametrize("kind", ["constant", "linear", "cosine"])
@pytest.mark.parametrize(("warmup", "total"), [(0, 10), (3, 10), (9, 10), (10, 10), (0, 1), (1, 1), (100, 300)])
def test_equal_to_transformers(kind: Shape, warmup: int, total: int) -> None:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=3e-4)
    makers: dict[str, Any] = {
        "constant": lambda: get_constant_schedule_with_warmup(optimizer, warmup),
        "linear": lambda: get_linear_schedule_with_warmup(optimizer, warmup, total),
        "cosine": lambda: get_cosine_schedule_with_warmup(optimizer, warmup, total),
    }
    theirs = makers[kind]()
    # Beyond the total, theirs climbs again; at a total that is all warm-up, their linear and cosine disagree.
    for index in range(total + (warmup < total)):
        ours = learning_rate(3e-4, kind, index=index, warmup_steps=warmup, total_steps=total)
        assert ours == pytest.approx(theirs.get_last_lr()[0], rel=1e-12, abs=1e-20), index
        optimizer.step()
        theirs.step()


@pytest.mark.parametrize(
    ("kind", "half", "end"),
    [
        # Down to a tenth: half way 0.55 of the base (0.1^(1/2) for an exponential), then a tenth.
        ("linear", 0.55, 0.1),
        ("cosine", 0.55, 0.1),
        ("exponential", sqrt(0.1), 0.1),
        ("constant", 1.0, 1.0),
    ],
)
def test_floor_ratio(kind: Shape, half: float, end: float) -> None:
    rates = [
        learning_rate(2.0, kind, index=index, warmup_steps=10, total_steps=110, floor_ratio=0.1)
        for index in (10, 60, 110, 999)
    ]
    assert rates == pytest.approx([2.0, 2 * half, 2 * end, 2 * end])


def test_a_cosine_with_a_floor_is_the_one_of_transformers() -> None:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=3e-4)
    theirs: Any = get_cosine_with_min_lr_schedule_with_warmup(optimizer, 3, 20, min_lr_rate=0.1)
    for index in range(21):
        ours = learning_rate(3e-4, "cosine", index=index, warmup_steps=3, total_steps=20, floor_ratio=0.1)
        assert ours == pytest.approx(theirs.get_last_lr()[0], rel=1e-12), index
        optimizer.step()
        theirs.step()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        # Patience 2, factor 1/2, min_delta 0.1.
        ([], 1.0),
        ([0.3], 1.0),
        ([0.3, 0.3], 1.0),  # one without improvement
        ([0.3, 0.3, 0.3], 0.5),  # two: cut
        ([0.3, 0.3, 0.3, 0.3], 0.5),  # the wait starts again
        ([0.3, 0.3, 0.3, 0.3, 0.3], 0.25),
        ([0.3, 0.35, 0.39], 0.5),  # less than 0.1 above the best is none, also when it adds up
        ([0.3, 0.3, 0.5, 0.5], 1.0),  # an improvement resets the wait
        ([0.3, 0.3, 0.5, 0.5, 0.5], 0.5),
        ([0.9, 0.3, 0.5], 0.5),  # up, but not above the best
        ([0.5, nan, nan], 0.5),
        ([nan, nan], 0.5),
        ([-inf, -1.0, -0.5, -0.2], 1.0),
    ],
)
def test_plateau_factor(values: list[float], expected: float) -> None:
    assert plateau_factor(values, patience=2, factor=0.5, min_delta=0.1) == expected


def test_plateau_without_patience_is_refused() -> None:
    with pytest.raises(ValueError, match="patience"):
        plateau_factor([0.1], patience=0, factor=0.5, min_delta=0.0)


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
