"""A consistency loss that rises, and a supervised loss that does not fall."""

from __future__ import annotations

import pytest

from core.health.case import Case, Settings
from core.health.finding import Row
from core.health.rules.other_losses import consistency, supervised_flat


def case(*values: float) -> Case:
    rows: list[Row] = [{"step": i, "consistency/loss": value} for i, value in enumerate(values, 1)]
    return Case(rows=rows, settings=Settings(consistency_weight=0.1))


def test_a_rise() -> None:
    # 1.01 to 1.30: the first ten are 1.055 on average, the last ten 1.255: by 19 %. To 1.45: 1.0825 and 1.3825, 28 %.
    assert consistency(case(*[1 + 0.01 * i for i in range(1, 31)])) == ()
    (found,) = consistency(case(*[1 + 0.015 * i for i in range(1, 31)]))
    assert (found.id, found.severity, found.suggest) == (
        "consistency-rising", "warning", ("consistency_weight=0.2",),
    )  # fmt: skip
    assert [ruled.id for ruled in found.rules_out] == ["consistency-too-strong"]


def test_what_is_no_rise() -> None:
    assert consistency(case(*[1 - 0.015 * i for i in range(1, 31)])) == ()
    assert consistency(case(*[1.0, 2.0] * 15)) == ()
    assert consistency(case(*[1.0] * 29, 9.0)) == ()  # one step: p is 0.03
    assert consistency(case(*[1 + 0.1 * i for i in range(19)])) == ()  # too short
    assert consistency(Case(rows=[])) == ()


def supervised(start: float, end: float, *, noise: float = 0.01, steps: int = 41) -> Case:
    rows: list[Row] = [
        {"step": i + 1, "supervised/loss": start + (end - start) * i / (steps - 1) + (noise if i % 2 else -noise)}
        for i in range(steps)
    ]
    return Case(rows=rows, settings=Settings(supervised_weight=0.3))


@pytest.mark.parametrize(
    ("start", "end", "noise", "found"),
    [
        (1.0, 1.0, 0.01, True),
        (1.0, 1.2, 0.01, True),  # it rises
        (1.0, 0.95, 0.01, True),  # 5 % in 40 steps is no fall
        (1.0, 0.85, 0.01, False),
        (1.0, 0.5, 0.01, False),
        (1.0, 1.0, 0.5, False),  # too noisy: the slope's se is 0.5 / (11.8 sqrt 41) = 0.0066, 3 x 40 x that is 0.8
        (0.05, 0.05, 0.001, False),  # nothing is left to learn
    ],
)
def test_flat(start: float, end: float, noise: float, found: bool) -> None:
    assert bool(supervised_flat(supervised(start, end, noise=noise))) == found


def test_what_is_said() -> None:
    (found,) = supervised_flat(supervised(1.0, 1.0))
    assert (found.id, found.severity, found.suggest) == ("supervised-flat", "warning", ("supervised_weight=0.6",))
    assert found.evidence["start"] == pytest.approx(1.0, abs=0.01)
    assert supervised_flat(supervised(1.0, 1.0, steps=19)) == ()
    assert supervised_flat(Case(rows=[{"step": 1, "loss": 1.0}])) == ()
