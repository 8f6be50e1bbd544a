"""Metrics, settings and counts as people read them."""

from __future__ import annotations

import pytest

from grpoctl.wording import metric_text, plural, setting_text


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("eval/reward", 0.5, "0.500"),
        ("best/eval/reward", 0.5, "0.500"),
        ("kl", 0.00012, "1.2e-04"),
        ("kl", 3e-17, "0.000"),  # the rest of 0.3 - 0.1 * 3
        ("eval/reward", -0.0, "0.000"),
        ("grad_norm", 123456.0, "1.2e+05"),
        ("completions", 3200.0, "3200"),
        ("updates", 197.5, "197.5"),
        ("seconds", 9.83, "9.8"),
        ("eval/reward", None, "-"),
    ],
)
def test_metric_text(name: str, value: float | None, text: str) -> None:
    assert metric_text(name, value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (2e-6, "2e-06"),
        (0.1234567890123, "0.1234567890123"),
        (8, "8"),
        ("cosine", "cosine"),
        ([], "[]"),
        (["q_proj", None], "[q_proj, null]"),
    ],
)
def test_setting_text(value: object, text: str) -> None:
    assert setting_text(value) == text


def test_plural() -> None:
    assert [plural(count, "step") for count in (0, 1, 2)] == ["0 steps", "1 step", "2 steps"]
