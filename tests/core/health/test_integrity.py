"""Rollout integrity: what rounding explains, and what it does not."""

from __future__ import annotations

import json
from math import inf, nan

import pytest

from core.health.rules.integrity import evaluation_integrity, max_gap, rollout_integrity, worst_integrity


@pytest.mark.parametrize(
    ("dtype", "temperature", "override", "limit"),
    [
        ("float32", 1.0, None, 1e-4),
        ("float32", 0.25, None, 2e-4),  # 1 / sqrt(T)
        ("float32", 2.0, None, 1e-4),  # but does not shrink above 1
        ("bfloat16", 1.0, None, 0.3),
        ("bfloat16", 0.09, None, 1.0),
        ("bfloat16", 0.15, 0.5, 0.5),
        ("float32", 0.1, 1e-5, 1e-5),
        (None, 1.0, None, 0.3),  # not known, or one that was never measured: the coarsest
        ("float16", 0.09, None, 1.0),
        (None, 1.0, 1e-5, 1e-5),
    ],
)
def test_limits(dtype: str | None, temperature: float, override: float | None, limit: float) -> None:
    assert max_gap(dtype, temperature, override) == pytest.approx(limit)


@pytest.mark.parametrize(
    ("gap", "temperature", "dtype", "found"),
    [
        (3.4e-6, 1.0, "float32", False),  # measured, sound
        (1e-4, 1.0, "float32", False),  # at the limit
        (1.01e-4, 1.0, "float32", True),
        (1.9e-4, 0.25, "float32", False),
        (2.1e-4, 0.25, "float32", True),
        (3.4e-6 / 0.15, 0.15, "float32", False),  # even if rounding grew as 1 / T
        (0.045, 1.0, "bfloat16", False),  # measured, sound
        (0.045 / 0.15, 0.15, "bfloat16", False),
        (2.7, 0.3, "bfloat16", True),  # measured, P30's fault where it is smallest
        (0.31, 1.0, "bfloat16", True),
        (3.0, 1.0, "float32", True),  # measured, P30's fault
        (3.0, 0.15, "bfloat16", True),
        (None, 1.0, "float32", True),  # recorded as "no number"
        (nan, 1.0, "float32", True),
        (inf, 1.0, "float32", True),
    ],
)
def test_thresholds(gap: float | None, temperature: float, dtype: str, found: bool) -> None:
    row = {"step": 5, "rollout/logprob_gap": gap, "temperature": temperature}
    finding = rollout_integrity(row, dtype=dtype)
    assert (finding is not None) == found
    if finding is not None:
        assert (finding.id, finding.severity) == ("rollout-integrity", "error")
        assert finding.evidence["step"] == 5
        json.dumps(finding.as_json(), allow_nan=False)  # what is no number is written in words


def test_no_gap_no_finding() -> None:
    assert rollout_integrity({"step": 1, "temperature": 1.0}, dtype="float32") is None


def test_over_a_table_the_first_is_told_and_the_others_counted() -> None:
    gaps = [9.0, 1e-6, 3.0, 4.0, 1e-6, 5.0]  # row 0 is the evaluation before training: no step
    table = [{"step": step, "rollout/logprob_gap": gap, "temperature": 1.0} for step, gap in enumerate(gaps)]
    finding = worst_integrity(table, dtype="float32")
    assert finding is not None
    assert finding.evidence == {"step": 2, "logprob_gap": 3.0, "limit": 1e-4, "steps": 3}
    assert "2 more of 5 steps" in finding.summary
    assert worst_integrity(table[:2], dtype="float32") is None
    assert worst_integrity(table, dtype="float32", override=6.0) is None


@pytest.mark.parametrize(
    ("above", "sound", "severity"),
    [
        ([1.1e-4], 99, "warning"),  # one of 100, and just above 1e-4
        ([2.1e-4], 1, "error"),  # every other step: not isolated
        ([2.1e-4] * 2, 28, "warning"),
        ([2.1e-4] * 3, 27, "error"),  # three, and a tenth of all
        ([2.1e-4] * 3, 97, "warning"),  # three, but less than a twentieth
        ([2.1e-4] * 5, 95, "error"),
        ([1.9e-4] * 99, 1, "warning"),  # many, but less than twice the limit
        ([1.2e-4, 2.1e-4, 2.2e-4], 0, "error"),  # by their median
        ([0.9e-3], 99, "warning"),
        ([1.1e-3], 99, "error"),  # more than 10 times the limit
        ([None], 99, "error"),
    ],
)
def test_gaps_that_are_few_or_near_the_limit_are_a_warning(
    above: list[float | None], sound: int, severity: str
) -> None:
    values = [*[1e-7] * sound, *above]
    table = [{"step": i, "rollout/logprob_gap": gap, "temperature": 1.0} for i, gap in enumerate(values, start=1)]
    finding = worst_integrity(table, dtype="float32")
    assert finding is not None
    assert (finding.severity, finding.confidence) == (severity, "strong" if severity == "error" else "moderate")
    live = rollout_integrity(table[-1], dtype="float32")  # a guard sees one step alone
    assert live is not None
    assert (live.severity, live.confidence) == ("error", "strong")


def test_of_an_unknown_dtype_the_coarsest_limit_holds_and_nothing_is_strong() -> None:
    table = [{"step": i, "rollout/logprob_gap": gap} for i, gap in enumerate((0.02, 0.29, 0.02), start=1)]
    assert worst_integrity(table, dtype=None) is None
    broken = [{**row, "rollout/logprob_gap": 4.0} for row in table]
    finding, told = worst_integrity(broken, dtype=None), worst_integrity(broken, dtype=None, override=1.0)
    assert finding is not None
    assert (finding.severity, finding.confidence) == ("error", "moderate")
    assert told is not None
    assert told.confidence == "strong"  # who sets the limit knows it


@pytest.mark.parametrize(
    ("gap", "temperature", "found"),
    [(1e-7, 1.0, False), (2e-4, 1.0, True), (1.8e-4, 0.3, False), (None, 1.0, True)],  # 1e-4 / sqrt(0.3) = 1.83e-4
)
def test_an_evaluation_is_looked_at_with_its_own_temperature(
    gap: float | None, temperature: float, found: bool
) -> None:
    row = {"step": 10, "temperature": 1.0, "eval/temperature": temperature, "eval/logprob_gap": gap}
    finding = evaluation_integrity(row, dtype="float32")
    assert (finding is not None) == found
    assert rollout_integrity(row, dtype="float32") is None  # this row says nothing of a training rollout
    assert (worst_integrity([row], dtype="float32") is not None) == found


def test_where_the_clean_forward_is_no_number_either_the_sampler_is_not_blamed() -> None:
    row = {"step": 3, "rollout/logprob_gap": nan, "entropy": nan}
    assert rollout_integrity(row, dtype="float32") is None
    assert rollout_integrity({**row, "entropy": None}, dtype="float32") is None
    assert rollout_integrity({**row, "entropy": 0.3}, dtype="float32") is not None
    assert rollout_integrity({**row, "rollout/logprob_gap": inf, "entropy": 0.3}, dtype="float32") is not None
