"""Schedules: tables, and the learning rates of transformers on a grid."""

from __future__ import annotations

from typing import Any, Literal

import pytest
import torch
from transformers import get_constant_schedule_with_warmup, get_cosine_schedule_with_warmup

from core.algorithms.schedules import learning_rate, linear


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
        ("constant", 0, 0.0),
        ("constant", 50, 1e-6),
        ("constant", 100, 2e-6),
        ("constant", 500, 2e-6),
    ],
)
def test_learning_rate(kind: Literal["constant", "cosine"], index: int, expected: float) -> None:
    got = learning_rate(2e-6, kind, index=index, warmup_steps=100, total_steps=300)
    assert got == pytest.approx(expected, rel=1e-12, abs=1e-20)


@pytest.mark.parametrize("kind", ["constant", "cosine"])
def test_with_a_warm_up_index_0_is_exactly_0(kind: Literal["constant", "cosine"]) -> None:
    assert learning_rate(2e-6, kind, index=0, warmup_steps=1, total_steps=10) == 0.0
    assert learning_rate(2e-6, kind, index=0, warmup_steps=0, total_steps=10) == 2e-6


@pytest.mark.parametrize("kind", ["constant", "cosine"])
@pytest.mark.parametrize(("warmup", "total"), [(0, 10), (3, 10), (9, 10), (10, 10), (0, 1), (1, 1), (100, 300)])
def test_equal_to_transformers(kind: Literal["constant", "cosine"], warmup: int, total: int) -> None:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=3e-4)
    theirs: Any = (
        get_cosine_schedule_with_warmup(optimizer, warmup, total)
        if kind == "cosine"
        else get_constant_schedule_with_warmup(optimizer, warmup)
    )
    for index in range(total + 1):  # beyond the total, theirs climbs again
        ours = learning_rate(3e-4, kind, index=index, warmup_steps=warmup, total_steps=total)
        assert ours == pytest.approx(theirs.get_last_lr()[0], rel=1e-12, abs=1e-20), index
        optimizer.step()
        theirs.step()
