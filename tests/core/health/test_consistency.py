"""A consistency loss that rises: outweighed, and not too strong."""

from __future__ import annotations

from core.health.case import Case, Settings
from core.health.finding import Row
from core.health.rules.other_losses import consistency


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
