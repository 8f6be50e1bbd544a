"""Expectations of a run: how they are written, when they are met, and what is no expectation."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from core.config import RunSpec
from core.config.expectation import parse
from tests.core.config.valid_run import RUN, refused


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("kl<0.123456789", "kl < 0.123456789"),  # six digits would make it 0.123457
        ("  eval/reward   >=  1.0 ", "eval/reward >= 1"),
        ("collapse_rate < 5e-2", "collapse_rate < 0.05"),
        ("reward/mean > -0.5", "reward/mean > -0.5"),
        ("eval/reward  gain>0.0", "eval/reward gain > 0"),
        (" eval/reward gain  of grpo >= .05", "eval/reward gain of grpo >= 0.05"),
        ("losses/consistency  trend of grpo>0", "losses/consistency trend of grpo > 0"),
        ("loss trend < 0", "loss trend < 0"),
    ],
)
def test_an_expectation_is_kept_exactly(written: str, kept: str) -> None:
    spec = RunSpec.model_validate({**RUN, "expects": [written]})
    assert spec.expects == (kept,)
    assert parse(kept) == parse(written)


@pytest.mark.parametrize(
    ("text", "observed", "met"),
    [
        ("kl < 1", 0.5, True), ("kl < 1", 1.0, False), ("kl <= 1", 1.0, True), ("kl > 1", 1.0, False),
        ("kl >= 1", 1.0, True), ("kl > 1", 2.0, True), ("kl < 1", float("nan"), False),
    ],
)  # fmt: skip
def test_an_expectation_is_met_or_not(text: str, observed: float, met: bool) -> None:
    assert parse(text).holds(observed) is met


@pytest.mark.parametrize(
    ("text", "interval", "met"),
    [
        ("eval/reward gain > 0", (0.01, 0.2), True),
        ("eval/reward gain > 0", (0.0, 0.2), False),  # above 0, not at it
        ("eval/reward gain of grpo >= 0", (0.0, 0.2), False),
        ("eval/reward gain > 0.05", (0.01, 0.2), False),
        ("eval/reward gain < 0", (-0.2, -0.01), True),
        ("eval/reward gain < 0", (-0.2, 0.01), False),
    ],
)
def test_a_gain_is_met_by_its_whole_interval(text: str, interval: tuple[float, float], met: bool) -> None:
    assert parse(text).holds_for(interval) is met


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("kl gain > 0", ("kl", "eval/reward")),  # no noise of it is recorded
        ("loss trend of nowhere > 0", ("nowhere", "grpo")),
        ("eval/reward gain of nowhere > 0", ("nowhere", "grpo")),  # a stage that is not there, and those that are
        ("eval/reward gain of > 0", ("gain of",)),
    ],
)
def test_a_gain_of_what_has_none_is_refused(text: str, facts: tuple[str, ...]) -> None:
    with pytest.raises(ValidationError) as refused:
        RunSpec.model_validate({**RUN, "expects": [text]})
    assert all(fact in str(refused.value) for fact in facts)


@pytest.mark.parametrize("text", ["kl", "kl = 1", "kl < x", "kl < nan", "kl < inf", "foo < 1", "advantage/sdt > 1", ""])
def test_what_is_no_expectation_is_refused(text: str) -> None:
    assert refused({"expects": [text]})["loc"] == ("expects", 0)
