"""What is said about one run."""

from __future__ import annotations

from typing import Any

import pytest

from grpoctl.analysis.outcome import beside_the_record, evaluations, reached, sentences
from grpoctl.analysis.wording import metric_text, plural, setting_text

RESULT: dict[str, Any] = {
    "run_id": "p31-tiny-s0-aaaaaaaa-1",
    "recorded_as": "p31@1",
    "profile": "tiny",
    "seed": 0,
    "status": "COMPLETED",
    "steps": 200,
    "updates": 1,
    "seconds": 9.83,
    "start": {"eval/reward": 0.4, "eval/reward_se": 0.03, "eval/valid": 0.86},
    "final": {"eval/reward": 0.6, "eval/reward_se": 0.04, "eval/valid": 1.0, "collapse_rate": 0.12},
    "best": {"eval/reward": 0.61, "eval/reward_se": 0.04, "eval/valid": 0.99},
    "expects": [
        {"expectation": "eval/reward > 0.45", "observed": 0.6, "met": True},
        {"expectation": "collapse_rate < 0.05", "observed": 0.12, "met": False},
        {"expectation": "advantage/std > 0.5", "observed": None, "met": None},
    ],
    "findings": [
        {"id": "rollout-mode", "severity": "error", "summary": "the model samples in train mode.", "evidence": {}},
        {"id": "dead-groups", "severity": "warning", "summary": "half the groups are dead.", "evidence": {}},
    ],
}


def rewards(start: float | None, final: float | None, se: float | None = None) -> dict[str, Any]:
    """A result with these rewards and one standard error on both ends."""
    return {
        "start": {"eval/reward": start, "eval/reward_se": se},
        "final": {"eval/reward": final, "eval/reward_se": se},
    }


@pytest.mark.parametrize(
    ("result", "text"),
    [
        # 0.2 over sqrt(0.03^2 + 0.04^2) = 0.05
        (RESULT, "eval/reward 0.400 -> 0.600, up by 0.200: 4.0 times its noise (standard error 0.050)"),
        (
            rewards(0.6, 0.4, 0.05),  # sqrt(2) * 0.05 = 0.0707; 0.2 / 0.0707 = 2.83
            "eval/reward 0.600 -> 0.400, down by 0.200: 2.8 times its noise (standard error 0.071)",
        ),
        (
            rewards(0.4, 0.5, 0.05),  # 0.1 / 0.0707 = 1.41 < 2
            "eval/reward 0.400 -> 0.500, up by 0.100: within noise (standard error 0.071)",
        ),
        (rewards(0.4, 0.5), "eval/reward 0.400 -> 0.500, up by 0.100"),
        (rewards(None, 0.5), "no eval/reward at the start: nothing to compare"),
        (rewards(0.5, None), "no eval/reward at the end: nothing to compare"),
        ({}, "no eval/reward at the start: nothing to compare"),
    ],
)
def test_reached(result: dict[str, Any], text: str) -> None:
    assert reached(result) == text


def test_sentences() -> None:
    assert [(line.label, line.mark, line.tone, line.text) for line in sentences(RESULT)] == [
        ("Run", "COMPLETED", "good", "p31@1, profile tiny, seed 0: 200 steps, 1 update, 9.8 s"),
        ("Reached", "", "plain", reached(RESULT)),
        ("Expected", "met", "good", "eval/reward > 0.45 (observed 0.600)"),
        ("Expected", "refuted", "bad", "collapse_rate < 0.05 (observed 0.120)"),
        ("Expected", "untested", "warn", "advantage/std > 0.5 (not observed)"),
        ("Finding", "ERROR", "bad", "rollout-mode: the model samples in train mode."),
        ("Finding", "WARNING", "warn", "dead-groups: half the groups are dead."),
        ("Evidence", "", "plain", "grpoctl diagnose p31-tiny-s0-aaaaaaaa-1"),
    ]


def test_a_finding_with_its_certainty_and_what_it_rules_out() -> None:
    """Reasons of what is ruled out are for `grpoctl diagnose`; a run from before either was said has neither."""
    finding = {
        "id": "rollout-mode", "severity": "error", "summary": "35 of 35.", "confidence": "strong",
        "rules_out": ["policy-collapse: it healed: 35 of 35", "num_generations=2: no weight moved"],
    }  # fmt: skip
    told = sentences(RESULT | {"expects": [], "findings": [finding]})[2:]
    assert [line.text for line in told] == [
        "rollout-mode (strong): 35 of 35.; ruled out: policy-collapse, num_generations=2",
        "grpoctl diagnose p31-tiny-s0-aaaaaaaa-1",
    ]


@pytest.mark.parametrize("findings", [[], [{"id": "noise", "severity": "info", "summary": "small."}]])
def test_where_nothing_is_wrong_no_evidence_is_offered(findings: list[dict[str, Any]]) -> None:
    assert "Evidence" not in [line.label for line in sentences(RESULT | {"findings": findings})]


@pytest.mark.parametrize(
    ("status", "tone"),
    [
        ("STOPPED_EARLY", "good"),
        ("COLLAPSED", "bad"),
        ("INVALID_ROLLOUT", "bad"),
        ("FAILED", "bad"),
        ("INTERRUPTED", "warn"),
    ],
)
def test_the_tone_of_an_ending(status: str, tone: str) -> None:
    assert sentences(RESULT | {"status": status})[0].tone == tone


def test_evaluations() -> None:
    assert evaluations(RESULT) == [
        ("eval/reward", "0.400", "0.600 ± 0.040", "0.610"),
        ("eval/valid", "0.860", "1.000", "0.990"),
    ]


def test_beside_the_record() -> None:
    recorded = {"updates": 38, "collapse_rate": 0.974, "kl": 0.1}
    assert beside_the_record(RESULT, recorded) == [
        ("updates", "38", "1"),
        ("collapse_rate", "0.974", "0.120"),
        ("kl", "0.100", "-"),
    ]


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("eval/reward", 0.5, "0.500"),
        ("best/eval/reward", 0.5, "0.500"),
        ("kl", 0.00012, "1.2e-04"),
        ("kl", 3e-17, "0.000"),  # the rest of 0.3 - 0.1 * 3
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
