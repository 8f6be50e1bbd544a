"""What is said about one run."""

from __future__ import annotations

from typing import Any

import pytest

from grpoctl.analysis.outcome import beside_the_record, evaluations, no_better_than_start, reached, sentences

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


UNSOUND = ", of its sampler: its rollouts are unsound"  # of RESULT by rollout-mode


def rewards(start: float | None, final: float | None, se: float | None = None) -> dict[str, Any]:
    """A result with these rewards and one standard error on both ends."""
    return {
        "start": {"eval/reward": start, "eval/reward_se": se},
        "final": {"eval/reward": final, "eval/reward_se": se},
    }


@pytest.mark.parametrize(
    ("result", "text"),
    [
        # errors 0.03 and 0.04: sqrt(0.03^2 + 0.04^2) = 0.05, times 1.96 where nobody says how many prompts there were
        (RESULT | {"findings": []}, "eval/reward 0.400 -> 0.600, +0.200 ± 0.098: a significant gain"),
        (RESULT, f"eval/reward 0.400 -> 0.600, +0.200 ± 0.098{UNSOUND}"),
        (
            RESULT | {"findings": [], "status": "INVALID_ROLLOUT"},
            f"eval/reward 0.400 -> 0.600, +0.200 ± 0.098{UNSOUND}",
        ),
        # 0.0707 times t of 8 degrees of freedom, 2.306: four of each evaluation of five prompts
        (
            {**rewards(0.6, 0.4, 0.05), "eval_prompts": 5},
            "eval/reward 0.600 -> 0.400, -0.200 ± 0.163: a significant loss",
        ),
        (rewards(0.4, 0.5, 0.05), "eval/reward 0.400 -> 0.500, +0.100 ± 0.139: not significant"),
        # of rewards in [0, 1] no gain is more than 1
        (
            {**rewards(0.05, 0.99, 0.05), "reward_range": [0.0, 1.0]},
            "eval/reward 0.050 -> 0.990, +0.940 [+0.801, +1.000]: a significant gain",
        ),
        (rewards(0.4, 0.5), "eval/reward 0.400 -> 0.500, +0.100"),
        (rewards(None, 0.5), "no eval/reward at the start: nothing to compare"),
        (rewards(0.5, None), "no eval/reward at the end: nothing to compare"),
        ({}, "no eval/reward at the start: nothing to compare"),
    ],
)
def test_reached(result: dict[str, Any], text: str) -> None:
    assert reached(result) == text


STAGES = {
    "supervised": {"start": 0.037, "end": 0.596, "gain": 0.559, "interval": [0.5, 0.618]},
    "grpo": {"start": 0.596, "end": 0.59, "gain": -0.006, "interval": [-0.05, 0.038]},
}


def test_a_command_is_not_said_to_have_made_updates() -> None:
    ended = [sentences(RESULT | more)[0].text for more in ({}, {"trainer": "command"})]
    assert ended == [
        "p31@1, profile tiny, seed 0: 200 steps, 1 update, 9.8 s", "p31@1, profile tiny, seed 0: 200 steps, 9.8 s"
    ]  # fmt: skip


def test_a_gain_is_said_of_the_stage_that_made_it() -> None:
    lines = [line.text for line in sentences(RESULT | {"stages": STAGES, "findings": []}) if line.label == "Stage"]
    assert lines == [
        "supervised: eval/reward 0.037 -> 0.596, +0.559 ± 0.059: a significant gain",
        "grpo: eval/reward 0.596 -> 0.590, -0.006 ± 0.044: not significant",
    ]
    lines = [line.text for line in sentences(RESULT | {"stages": STAGES}) if line.label == "Stage"]
    assert lines == [
        f"supervised: eval/reward 0.037 -> 0.596, +0.559 ± 0.059{UNSOUND}",
        f"grpo: eval/reward 0.596 -> 0.590, -0.006 ± 0.044{UNSOUND}",
    ]
    one = {"grpo": STAGES["grpo"]}
    assert [line for line in sentences(RESULT | {"stages": one}) if line.label == "Stage"] == []  # it is the run's


@pytest.mark.parametrize(
    ("start", "best", "step", "warned"),
    [
        (0.5, 0.7, None, False),
        (0.5, 0.52, None, True),  # better, and not significantly
        (0.5, 0.5, None, True),
        (0.5, 0.4, None, True),
        (0.5, 0.7, 20, True),  # not the best evaluation's weights: those at the end, 0.5
    ],
)
def test_a_best_that_is_no_better_than_the_start_is_a_warning(
    start: float, best: float, step: int | None, warned: bool
) -> None:
    evaluated = {"eval/reward_se": 0.02}
    result = {
        **rewards(start, 0.5, 0.02), "best": {"step": 10, "eval/reward": best, **evaluated}, "eval_prompts": 64,
    }  # fmt: skip
    assert (no_better_than_start(result, step) is not None) is warned
    assert no_better_than_start({**result, "best": {}}) is None  # never evaluated after the start


@pytest.mark.parametrize(
    ("met", "observed", "interval", "mark"),
    [
        (True, 0.1, [0.05, 0.15], "met"),
        (False, 0.1, [-0.05, 0.25], "not shown"),  # on the right side, not significant
        (False, -0.1, [-0.2, 0.1], "not shown"),
        (False, -0.1, [-0.2, -0.01], "refuted"),
        (None, 0.1, None, "untested"),
    ],
)
def test_what_a_gain_that_was_expected_came_to(met: bool | None, observed: float, interval: Any, mark: str) -> None:
    entry = {"expectation": "eval/reward gain > 0", "observed": observed, "interval": interval, "met": met}
    (line,) = [line for line in sentences(RESULT | {"expects": [entry]}) if line.label == "Expected"]
    assert (line.mark, f"{observed:+.3f}" in line.text or interval is None) == (mark, True)


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
        ("eval/reward", "0.400", "0.600 ± 0.078", "0.610"),
        ("eval/valid", "0.860", "1.000", "0.990"),
    ]


def test_beside_the_record() -> None:
    recorded = {"updates": 38, "collapse_rate": 0.974, "kl": 0.1}
    assert beside_the_record(RESULT, recorded) == [
        ("updates", "38", "1"),
        ("collapse_rate", "0.974", "0.120"),
        ("kl", "0.100", "-"),
    ]
