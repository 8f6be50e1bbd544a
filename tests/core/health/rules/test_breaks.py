"""Before and after the first update, when a column has left its start, and the limits of the live guard."""

from __future__ import annotations

import pytest

from core.config import GuardSpec
from core.health.finding import Row
from core.health.rules.breaks import acted, limits, onset, parted, policy_collapse, precedence_p, spread


@pytest.mark.parametrize(
    ("row", "moved"),
    [
        ({"update": 1, "learning_rate": 0.1}, True),
        ({"update": 1}, True),  # a log that does not say its rate
        ({"update": 1, "learning_rate": 0.0}, False),  # the first step of a warm-up
        ({"update": 0, "learning_rate": 0.1}, False),
        ({"learning_rate": 0.1, "grad_norm": 2.0}, True),  # a log without update marks
        ({"learning_rate": 0.1, "grad_norm": 0.0}, False),
        ({"learning_rate": 0.1}, True),
        ({"reward/mean": 0.1}, False),
    ],
)
def test_acted(row: Row, moved: bool) -> None:
    assert acted(row) is moved


def test_a_step_is_drawn_before_its_own_update() -> None:
    # Update marks 0 1 0 1 1: steps 1 and 2 are the start's; then 1, 1 and 2 updates have acted.
    rows: list[Row] = [{"step": 0, "eval/valid": 0.9}]
    rows += [{"step": i, "update": u, "completions/valid": 0.5} for i, u in enumerate((0, 1, 0, 1, 1), 1)]
    before, after = parted(rows)
    assert [row["step"] for row in before] == [0, 1, 2]
    assert [(count, row["step"]) for count, row in after] == [(1, 3), (1, 4), (2, 5)]
    assert parted([*rows[:3], {"step": 3, "update": 1}])[1] == []  # a supervised step draws nothing


def rows_of(*values: float) -> list[Row]:
    return [{"step": i, "update": 1, "completions/valid": v, "entropy": v} for i, v in enumerate(values, 1)]


def test_onset_is_where_it_left_for_good() -> None:
    # Start 0.8. Below half of it: 0.3 (once, back again), then 0.3 0.2 0.1 from step 4 on; their median is 0.2.
    left = onset(rows_of(0.8, 0.3, 0.8, 0.3, 0.2, 0.1), "entropy", lambda start, now: now < 0.5 * start)
    assert left is not None
    assert (left.step, left.updates, left.before, left.after) == (4, 3, 0.8, 0.2)
    assert onset(rows_of(0.8, 0.3, 0.2, 0.8, 0.8, 0.8), "entropy", lambda start, now: now < 0.5 * start) is None
    assert onset(rows_of(0.8, 0.3, 0.3), "entropy", lambda start, now: now < 0.5 * start) is None  # two are chance
    assert onset(rows_of(0.8, 0.3, 0.3, 0.3), "kl", lambda start, now: now < 0.5 * start) is None  # unknown


def test_what_was_learned_before_the_first_draw_is_part_of_the_start() -> None:
    # Three supervised updates, then steps 4 (updates), 5: one update has acted before 5, not four.
    rows: list[Row] = [{"step": i, "update": 1, "supervised/loss": 1.0} for i in (1, 2, 3)]
    rows += [{"step": i, "update": 1, "completions/valid": 0.9} for i in (4, 5)]
    before, after = parted(rows)
    assert [row["step"] for row in before] == [1, 2, 3, 4]
    assert [(count, row["step"]) for count, row in after] == [(1, 5)]


def test_precedence() -> None:
    # 2 before, 3 after. All 3 lie below: 1 of C(5, 2) = 10 orders. 2 lie below: the two lowest are among the three in
    # C(3, 2) = 3 of 10. Equal values do not lie below.
    assert precedence_p([5, 6], [1, 2, 3]) == pytest.approx(0.1)
    assert precedence_p([5, 6], [1, 2, 7]) == pytest.approx(0.3)
    assert precedence_p([5, 6], [5, 6, 7]) == 1.0
    assert precedence_p([1, 2], [5, 6, 7]) == 1.0  # above is not below
    assert precedence_p([9], [1] * 19) == pytest.approx(1 / 20)  # one value proves nothing
    assert precedence_p([], [1]) == precedence_p([1], []) == 1.0


def test_spread() -> None:
    # Squares around the means 2 and 5: 2 and 2, over 2 + 2 degrees of freedom.
    assert spread([1, 2, 3], [4, 5, 6]) == pytest.approx(1.0)
    assert spread([5], [1, 2, 3]) == pytest.approx(1.0)  # one value has no spread of its own
    assert spread([5], []) == spread([], []) == 0.0


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
    finding = policy_collapse(table(metric, *values), GUARDS)
    assert (finding is not None) == found
    if finding is not None:
        assert (finding.id, finding.severity) == ("policy-collapse", "error")
        assert finding.evidence["metric"] == metric
        assert finding.evidence["value"] == values[-1]
        assert finding.evidence["last_step"] == len(values)


def test_the_streak_is_named_from_its_first_step() -> None:
    finding = policy_collapse(table("completions/valid", 0.0, 0.9, 0.02, 0.0, 0.01), GUARDS)
    assert finding is not None
    assert finding.evidence == {"metric": "completions/valid", "first_step": 3, "last_step": 5, "value": 0.01}
    assert "below 0.05 for 3 steps in a row" in finding.summary


@pytest.mark.parametrize("metric", ["loss", "grad_norm", "kl", "entropy", "rollout/logprob_gap"])
def test_what_is_no_number_is_found_at_once(metric: str) -> None:
    finding = policy_collapse(table(metric, 0.5, None), GUARDS)
    assert finding is not None
    assert (finding.id, finding.severity) == ("numerical", "error")
    assert finding.evidence == {"step": 2, "metric": metric}
    assert policy_collapse(table(metric, None, 0.5), GUARDS) is None  # of the last step only: it was found before


@pytest.mark.parametrize(("update", "applied"), [(0, False), (1, True)])
def test_only_an_update_that_was_not_applied_is_said_not_to_be(update: int, applied: bool) -> None:
    row = {**table("entropy", None)[-1], "update": update}
    finding = policy_collapse([row], GUARDS)
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
    assert policy_collapse(table(metric, *values), GUARDS) is not None
    assert policy_collapse(table(metric, *values), GUARDS.model_copy(update={limit: None})) is None


def test_a_limit_of_zero_is_watched() -> None:
    # "kl above 0" and "truncated above 0" are limits like any other; "below 0" cannot be.
    strict = GUARDS.model_copy(update={"max_truncated": 0.0, "min_valid": 0.0})
    assert policy_collapse(table("completions/truncated", 0.1, 0.1, 0.1), strict) is not None
    assert policy_collapse(table("completions/valid", 0.0, 0.0, 0.0), strict) is None
    assert [str(limit) for limit in limits(strict)][:3] == ["below 0.0", "below 0.001", "above 0.0"]


def test_nothing_is_found_in_nothing() -> None:
    assert policy_collapse([], GUARDS) is None
    assert policy_collapse(table("kl"), GUARDS) is None


def test_a_metric_that_few_steps_have_is_still_looked_at() -> None:
    # KL is there only where there was an update: here on every fifth step. Five in a row are 25 steps.
    rows = [{"step": i, "update": int(i % 5 == 0), **({"kl": 50.0} if i % 5 == 0 else {})} for i in range(1, 31)]
    finding = policy_collapse(rows, GuardSpec(patience=5, max_kl=10.0))
    assert finding is not None
    assert finding.evidence["metric"] == "kl"
    assert policy_collapse(rows[:24], GuardSpec(patience=5, max_kl=10.0)) is None
