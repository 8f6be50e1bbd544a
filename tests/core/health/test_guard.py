"""The limits of the live guard: streaks, NaN, limits that are off."""

from __future__ import annotations

import pytest

from core.config import GuardSpec
from core.health.finding import Row
from core.health.guard import collapse_finding, limits, watched_guards
from tests.core.health.before.conftest import DROPOUT, run_spec

GUARDS = GuardSpec(patience=3)
HEALTHY: Row = {
    "completions/valid": 0.9,
    "completions/length": 12.0,
    "completions/truncated": 0.0,
    "entropy": 0.5,
    "kl": 0.1,
    "loss": 0.0,
    "grad_norm": 1.0,
    "rollout/logprob_gap": 1e-6,
    "update": 1,
}
MISSING = "missing"


def table(metric: str, *values: float | str | None) -> list[Row]:
    """Steps that are healthy but for one metric; `missing` leaves it out."""
    rows: list[Row] = [{"step": 0, "completions": 0, "eval/valid": 0.0}]
    for step, value in enumerate(values, 1):
        row = {name: number for name, number in HEALTHY.items() if name != metric}
        rows.append({"step": step, **row} if isinstance(value, str) else {"step": step, **row, metric: value})
    return rows


@pytest.mark.parametrize(
    ("metric", "values", "found"),
    [
        ("completions/valid", (0.0, 0.0, 0.0), True),
        ("completions/valid", (0.9, 0.04, 0.01, 0.0), True),
        ("completions/valid", (0.0, 0.0), False),  # patience is 3
        ("completions/valid", (0.0, 0.0, 0.05), False),  # the limit itself is allowed
        ("completions/valid", (0.0, 0.0, 0.9, 0.0), False),  # interrupted
        ("completions/valid", (0.0, 0.0, 0.0, 0.9), False),  # and over
        ("entropy", (1e-4, 1e-5, 0.0), True),
        ("entropy", (1e-3, 1e-3, 1e-3), False),
        ("completions/truncated", (1.0, 0.96, 1.0), True),
        ("completions/truncated", (0.95, 0.95, 0.95), False),
        ("completions/length", (1.0, 1.0, 1.0), True),  # nothing but the end token
        ("completions/length", (1.0, 1.0, 1.5), False),
        ("kl", (11.0, 12.0, 13.0), True),
        ("kl", (11.0, 12.0, 10.0), False),
        # Steps without an update have no kl: those that have one are counted, the others do not interrupt.
        ("kl", (11.0, MISSING, 12.0, MISSING, 13.0), True),
        ("kl", (11.0, MISSING, 12.0, MISSING), False),
        ("kl", (MISSING, MISSING, MISSING), False),
        ("completions/valid", (MISSING, MISSING, MISSING), False),
        # Recorded, but no number: neither broken nor mended for what is not watched for NaN.
        ("completions/valid", (0.0, None, 0.0, 0.0), True),
        ("completions/valid", (None, None, None), False),
    ],
)
def test_streaks(metric: str, values: tuple[float | str | None, ...], found: bool) -> None:
    finding = collapse_finding(table(metric, *values), GUARDS)
    assert (finding is not None) == found
    if finding is not None:
        assert (finding.id, finding.severity) == ("policy-collapse", "error")
        assert finding.evidence["metric"] == metric
        assert finding.evidence["value"] == values[-1]
        assert finding.evidence["last_step"] == len(values)


def test_the_streak_is_named_from_its_first_step() -> None:
    finding = collapse_finding(table("completions/valid", 0.0, 0.9, 0.02, 0.0, 0.01), GUARDS)
    assert finding is not None
    assert finding.evidence == {"metric": "completions/valid", "first_step": 3, "last_step": 5, "value": 0.01}
    assert "below 0.05 for 3 steps in a row" in finding.summary


@pytest.mark.parametrize("metric", ["loss", "grad_norm", "kl", "entropy", "rollout/logprob_gap"])
def test_what_is_no_number_is_found_at_once(metric: str) -> None:
    finding = collapse_finding(table(metric, 0.5, None), GUARDS)
    assert finding is not None
    assert (finding.id, finding.severity) == ("numerical", "error")
    assert finding.evidence == {"step": 2, "metric": metric}
    assert collapse_finding(table(metric, None, 0.5), GUARDS) is None  # of the last step only: it was found before


@pytest.mark.parametrize(("update", "applied"), [(0, False), (1, True)])
def test_only_an_update_that_was_not_applied_is_said_not_to_be(update: int, applied: bool) -> None:
    row = {**table("entropy", None)[-1], "update": update}
    finding = collapse_finding([row], GUARDS)
    assert finding is not None
    assert ("not applied" in finding.summary) == (not applied)


@pytest.mark.parametrize(
    ("metric", "limit"),
    [
        ("completions/valid", "min_valid"),
        ("entropy", "min_entropy"),
        ("completions/truncated", "max_truncated"),
        ("completions/length", "min_length"),
        ("kl", "max_kl"),
    ],
)
def test_a_limit_of_null_is_not_watched(metric: str, limit: str) -> None:
    values = (99.0, 99.0, 99.0) if limit.startswith("max") else (0.0, 0.0, 0.0)
    assert collapse_finding(table(metric, *values), GUARDS) is not None
    assert collapse_finding(table(metric, *values), GUARDS.model_copy(update={limit: None})) is None


def test_a_limit_of_zero_is_watched() -> None:
    # "kl above 0" and "truncated above 0" are limits like any other; "below 0" cannot be.
    strict = GUARDS.model_copy(update={"max_truncated": 0.0, "min_valid": 0.0})
    assert collapse_finding(table("completions/truncated", 0.1, 0.1, 0.1), strict) is not None
    assert collapse_finding(table("completions/valid", 0.0, 0.0, 0.0), strict) is None
    assert [str(limit) for limit in limits(strict)][:3] == ["below 0.0", "below 0.001", "above 0.0"]


def test_nothing_is_found_in_nothing() -> None:
    assert collapse_finding([], GUARDS) is None
    assert collapse_finding(table("kl"), GUARDS) is None


def test_a_metric_that_few_steps_have_is_still_looked_at() -> None:
    # KL is there only where there was an update: here on every fifth step. Five in a row are 25 steps.
    rows = [{"step": i, "update": int(i % 5 == 0), **({"kl": 50.0} if i % 5 == 0 else {})} for i in range(1, 31)]
    finding = collapse_finding(rows, GuardSpec(patience=5, max_kl=10.0))
    assert finding is not None
    assert finding.evidence["metric"] == "kl"
    assert collapse_finding(rows[:24], GuardSpec(patience=5, max_kl=10.0)) is None


@pytest.mark.parametrize(
    ("policy", "watched"),
    [
        ({"dropout": 0.5, "attention_dropout": 0.0}, None),  # dropout alone makes its kl large
        ({"dropout": 0.0, "attention_dropout": 0.0}, 10.0),
    ],
)
def test_the_kl_of_a_policy_with_dropout_is_not_watched(policy: dict[str, float], watched: float | None) -> None:
    pointer = {"policy": {"kind": "pointer", **policy}, "model": None, "task": {"name": "example-selection"}}
    spec = run_spec(run=pointer, max_completion_length=2)
    assert watched_guards(spec) == GuardSpec(max_kl=watched)


def test_an_adapters_dropout_is_small_beside_the_limit() -> None:
    assert watched_guards(run_spec(run=DROPOUT)) == GuardSpec()
