"""The run's own noise: what counts as it, the limits that follow, and which gaps exceed it."""

from __future__ import annotations

import pytest

from core.health.finding import Row
from core.health.own_noise import excess, noise_of
from core.health.rules.integrity import resumed_integrity


def start(largest: float, mean: float, rescored: float, **more: float) -> Row:
    """A row before step 1 with a calibration."""
    measured = {"rollout/noise": largest, "rollout/noise_mean": mean, "rollout/rescoring_gap": rescored}
    return {"step": 0, **measured, **more}


@pytest.mark.parametrize(
    ("dtype", "measured", "expected"),
    [
        ("bfloat16", (0.03, 0.01, 0.01), 0.03),
        # The floor of bf16 is 2^-8 = 0.00390625, of fp32 1e-4, and an unknown dtype is taken for the coarsest.
        ("bfloat16", (0.001, 0.0005, 0.0), 2**-8),
        ("float32", (5e-6, 2e-6, 3e-7), 1e-4),
        (None, (5e-6, 2e-6, 3e-7), 2**-8),
        # An unsound start: at most 10 times what two scorings differ by, or the floor where that is more.
        ("bfloat16", (3.0, 1.0, 0.01), 0.1),
        ("float32", (3.0, 1.0, 0.0), 1e-3),
    ],
)
def test_what_counts_as_noise(dtype: str | None, measured: tuple[float, float, float], expected: float) -> None:
    noise = noise_of(start(*measured), dtype, 1.0)
    assert noise is not None
    assert noise.largest == pytest.approx(expected)


def test_without_a_calibration_or_a_factor_nothing_is_judged() -> None:
    assert noise_of(None, "float32", 1.0) is None
    assert noise_of({"step": 0, "eval/reward": 0.5}, "float32", 1.0) is None
    assert noise_of(start(0.03, 0.01, 0.01), "bfloat16", None) is None


def test_limits() -> None:
    # Calibrated at temperature 1. At 0.5 logits are twice as far apart in log-probs; above 1 the limit stays.
    noise = noise_of(start(0.03, 0.01, 0.01, **{"eval/temperature": 1.0}), "bfloat16", 2.0)
    assert noise is not None
    assert [noise.limit(temperature, 100) for temperature in (1.0, 0.5, 2.0)] == pytest.approx([0.06, 0.12, 0.06])
    assert noise.canary_limit(1.0, 100) == pytest.approx(0.09)


@pytest.mark.parametrize(
    ("measured", "tokens", "expected"),
    [
        ((0.03, 0.02, 0.01), 100.0, 0.03),  # 0.02 * (1 + 2.5/10) is less than the largest prompt's
        ((0.03, 0.02, 0.01), 25.0, 0.03),  # 0.02 * (1 + 2.5/5), as much
        ((0.03, 0.02, 0.01), 4.0, 0.045),
        ((0.03, 0.02, 0.01), 1.0, 0.07),
        ((0.03, 0.001, 0.01), 1.0, 0.03),
        # No more than 10 times what the trainer's scores differ by, however few tokens: an unsound start stays bounded.
        ((3.0, 1.0, 0.01), 1.0, 0.1),
        ((0.08, 0.05, 0.01), 1.0, 0.1),
    ],
)
def test_the_noise_of_few_tokens_is_larger(
    measured: tuple[float, float, float], tokens: float, expected: float
) -> None:
    noise = noise_of(start(*measured), "bfloat16", 2.0)
    assert noise is not None
    assert noise.of(tokens) == pytest.approx(expected)
    assert noise.limit(1.0, tokens) == pytest.approx(2 * expected)


@pytest.mark.parametrize(
    ("rescored", "expected"),
    [(0.01, 0.03), (0.025, 0.0375), (0.05, 0.075), (0.5, 0.1)],  # mean 0.02, then 0.025 and 0.05; bounded by the start
)
def test_what_two_scorings_of_a_step_differ_by_is_noise_of_that_step(rescored: float, expected: float) -> None:
    noise = noise_of(start(0.03, 0.02, 0.01), "bfloat16", 2.0)
    assert noise is not None
    assert noise.at_least(rescored).of(25.0) == pytest.approx(expected)
    assert noise.of(25.0) == pytest.approx(0.03)


def test_fp32_is_judged_by_its_floor_however_few_tokens() -> None:
    noise = noise_of(start(5e-6, 2e-6, 3e-7), "float32", 2.0)
    assert noise is not None
    assert noise.of(1.0) == noise.of(100.0) == 1e-4


def rows(*gaps: float | None, metric: str = "rollout/logprob_gap", limit: str = "rollout/detectable_gap") -> list[Row]:
    """Steps with these gaps, each against a limit of 0.1; None: the step has none."""
    return [{"step": step, **({} if gap is None else {metric: gap, limit: 0.1})} for step, gap in enumerate(gaps, 1)]


CANARY = {"metric": "canary/logit_gap", "limit": "canary/detectable_gap"}


@pytest.mark.parametrize(
    ("table", "step"),
    [
        (rows(0.05, 0.09, 0.1), None),
        (rows(0.05, 0.14), None),  # 0.5 and 1.4 times the limit: 0.95 on average
        (rows(0.05, 0.16), 2),  # 1.05
        (rows(0.11, 0.12), 2),
        (rows(0.16, 0.05), 2),  # one was large, and the next one is not small
        (rows(0.11, 0.12, 0.05), None),
        (rows(0.19), None),  # nothing before it
        (rows(0.21), 1),
        (rows(0.11, 0.12, **CANARY), 2),
        (rows(0.11, None, None, 0.12, **CANARY), 4),  # the one before it that was measured
        (rows(0.11, None, 0.05, 0.12, **CANARY), None),
        (rows(0.3, None, **CANARY), None),  # the last row says nothing
        ([], None),
    ],
)
def test_what_exceeds_the_noise(table: list[Row], step: int | None) -> None:
    beyond = excess(table)
    assert (None if beyond is None else beyond.step) == step
    if beyond is not None:
        assert beyond.gap == table[-1][beyond.metric]
        assert beyond.times > 1


@pytest.mark.parametrize(
    ("again", "sound"),
    [
        ({"rollout/noise_mean": 0.029, "rollout/rescoring_gap": 0.01}, True),  # the run's largest was 0.03
        ({"rollout/noise_mean": 0.031, "rollout/rescoring_gap": 0.01}, False),
        ({"rollout/noise_mean": 0.05, "rollout/rescoring_gap": 0.06}, True),  # this machine rounds more, by itself
        ({}, True),
    ],
)
def test_a_resumed_run_is_looked_at_before_its_first_step(again: dict[str, float], sound: bool) -> None:
    table = [start(0.03, 0.01, 0.01), {"step": 7}]
    finding = resumed_integrity(table, again, dtype="bfloat16", factor=1.0)
    assert (finding is None) == sound
    if finding is not None:
        assert finding.evidence["step"] == 7
    assert resumed_integrity(table, again, dtype="bfloat16", factor=None) is None
