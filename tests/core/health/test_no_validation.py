"""Runs without an evaluation."""

from __future__ import annotations

import pytest

from core.health.case import Case
from core.health.finding import Row
from core.health.rules.validation import no_validation


def rows(steps: int, **more: float) -> list[Row]:
    return [{"step": step, "reward/mean": 0.5} for step in range(1, steps)] + [{"step": steps, **more}]


@pytest.mark.parametrize(
    ("case", "steps"),
    [
        (Case(rows=rows(51)), 51),
        (Case(rows=rows(50)), None),
        (Case(rows=rows(6), averaged_over=10), 60),
        (Case(rows=rows(51, **{"eval/reward": 0.5})), None),
        (Case(rows=rows(51, **{"eval/loss": 0.5})), None),
        (Case(rows=[]), None),
    ],
)
def test_no_validation(case: Case, steps: int | None) -> None:
    findings = no_validation(case)
    assert [one.evidence["steps"] for one in findings] == ([] if steps is None else [steps])
    assert all((one.id, one.severity) == ("no-validation", "info") for one in findings)
