"""Broken from the first step that drew completions."""

from __future__ import annotations

import pytest

from core.config import GuardSpec
from core.health.case import Case
from core.health.finding import Row
from core.health.rules.policy_collapse import unsound_start


def case(metric: str, *values: float, **more: float) -> Case:
    """Steps with these values of a column."""
    rows: list[Row] = [{"step": i, "update": 1, "reward/mean": 0.1, metric: v, **more} for i, v in enumerate(values, 1)]
    return Case(rows=rows, guards=GuardSpec(patience=3))


@pytest.mark.parametrize(
    ("valid", "found"),
    [
        ([0.0] * 9, True),
        ([0.0] * 20 + [0.2], True),
        ([0.3] + [0.0] * 9, False),  # the first step was sound
        ([0.0, 0.0, 0.3] + [0.0] * 9, False),  # not three in a row
        ([0.0] * 6 + [0.3] * 3, False),  # it healed
        ([0.0] * 40 + [0.3] * 8, False),  # in the end: 8 of the last third's 16
        ([0.0] * 2, False),
    ],
)
def test_from_the_first_step_to_the_last(valid: list[float], found: bool) -> None:
    assert bool(unsound_start(case("completions/valid", *valid))) == found


@pytest.mark.parametrize(
    ("metric", "value", "severity", "confidence"),
    [
        ("completions/valid", 0.0, "error", "strong"),
        ("completions/truncated", 0.96, "warning", "moderate"),  # what is valid is not known
        ("entropy", 1e-5, "warning", "moderate"),
        ("kl", 30.0, "warning", "moderate"),
    ],
)
def test_how_grave(metric: str, value: float, severity: str, confidence: str) -> None:
    (found,) = unsound_start(case(metric, *[value] * 9))
    assert (found.id, found.severity, found.confidence) == ("unsound-start", severity, confidence)
    assert ("it may be meant" in found.summary) == (severity == "warning")


def test_what_is_cut_off_and_hardly_valid() -> None:
    (found,) = unsound_start(case("completions/truncated", *[0.96] * 9, **{"completions/valid": 0.1}))
    assert (found.severity, found.evidence["metric"]) == ("error", "completions/truncated")


def test_what_is_odd_and_valid_is_by_design() -> None:
    # Continuations of a fixed length: all are cut off, and all are what was asked for.
    assert unsound_start(case("completions/truncated", *[0.96] * 9, **{"completions/valid": 1.0})) == ()


def test_what_missing_eos_says_is_not_said_twice() -> None:
    assert unsound_start(case("completions/truncated", *[1.0] * 9, **{"completions/valid": 0.0})) == ()


def test_a_supervised_stage_before_it_has_no_say() -> None:
    later = [{**row, "step": (row["step"] or 0) + 9} for row in case("completions/valid", *[0.0] * 9).rows]
    supervised: list[Row] = [{"step": step, "update": 1} for step in range(1, 10)]
    (found,) = unsound_start(Case(rows=[*supervised, *later]))
    assert found.evidence["first_step"] == 10


def test_a_few_valid_completions_all_the_time_may_be_a_hard_task() -> None:
    # 2 % of 32: none or one on most steps, two on some; next to nothing is a fifth of the limit of 5 %, 1 %.
    (hard,) = unsound_start(case("completions/valid", *[0.0, 0.031, 0.0, 0.031, 0.0, 0.0625, 0.0, 0.031, 0.0, 0.031]))
    assert (hard.severity, hard.confidence) == ("warning", "moderate")
    assert "or the task is too hard (1.9% are valid)" in hard.summary
    (broken,) = unsound_start(case("completions/valid", *[0.0] * 19, 0.0625))
    assert (broken.severity, broken.confidence) == ("error", "strong")
