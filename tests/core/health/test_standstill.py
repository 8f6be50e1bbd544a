"""A collapse right after an update at a learning rate of 0, in runs that skip nothing."""

from __future__ import annotations

import pytest

from core.health.case import Case, Notice, Settings
from core.health.examine import examine
from core.health.finding import Row
from core.health.rules.rollout_mode import Standstill, agrees, rollout_mode, standstill


def log(
    truncated: list[float], *, rates: list[float] | None = None, metric: str = "completions/truncated", first: int = 1
) -> list[Row]:
    """A step for each share; the learning rate warms up from 0 (0, 2e-8, 4e-8, ...) where none is given."""
    rates = rates or [2e-8 * i for i in range(len(truncated))]
    return [
        {"step": i, "learning_rate": rate, metric: share}
        for i, (share, rate) in enumerate(zip(truncated, rates, strict=True), first)
    ]


WARM = [0.02, *[1.0] * 9]  # sound on step 1, all cut off from step 2 on


def test_it_is_found() -> None:
    assert standstill(Case(rows=log(WARM))) == Standstill(
        metric="completions/truncated", lr_0_step=1, before=0.02, since=1.0, collapsed=9, steps_since=9
    )


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        (log([1.0, *[0.0] * 9], metric="completions/valid"), True),
        (log([1.0, *[0.05] * 9], metric="completions/valid"), True),  # one of twenty was rescued
        (log([1.0, *[0.2] * 9], metric="completions/valid"), False),
        (log(WARM, rates=[1e-6] * 10), False),  # the first update moved weights
        (log(WARM, rates=[0.0] * 10), False),  # rates may be rounded to 0
        (log([1.0] * 10), False),  # it began so: core.health.rules.end_token
        (log([0.02, 0.02, *[1.0] * 8]), False),  # one update had acted
        (log([0.02, *[1.0] * 5, *[0.1] * 4]), False),  # it did not last
        (log([0.02, *[1.0] * 4]), False),  # four steps since are too few
        (log([0.02, *[1.0] * 28, 0.6]), True),  # one step of 29 had a few that ended
        (log([0.02, *[1.0] * 28, 0.4]), False),  # one was sound: some prompts are
        (log(WARM, rates=[0.0, 0.0, *[1e-8] * 8]), False),
        ([row | {"step": 10 * (row["step"] or 0)} for row in log(WARM)], False),  # what lies between is not known
        ([row | {"rollout/logprob_gap": 1e-7} for row in log(WARM)], False),  # sampler and trainer agree
        ([row | {"rollout/logprob_gap": 4.0} for row in log(WARM)], True),
    ],
)
def test_what_it_takes(rows: list[Row], found: bool) -> None:
    assert (standstill(Case(rows=rows)) is not None) == found
    assert standstill(Case(rows=rows, averaged_over=10)) is None


def test_the_settings_may_say_that_the_first_rate_was_0() -> None:
    rows: list[Row] = [
        {"step": i, "update": 1, "completions/valid": float(i == 1)} for i in range(1, 11)
    ]  # no learning rate is printed
    assert standstill(Case(rows=rows)) is None
    assert standstill(Case(rows=rows, settings=Settings(first_update_lr=0.0))) is not None
    later = [{**row, "step": (row["step"] or 0) + 50} for row in rows]
    assert standstill(Case(rows=later, settings=Settings(first_update_lr=0.0))) is None


def test_the_sampler_is_blamed_and_no_rate() -> None:
    (finding,) = rollout_mode(Case(rows=log(WARM), settings=Settings(num_generations=2)))
    assert (finding.id, finding.severity, finding.confidence) == ("rollout-mode", "error", "moderate")
    assert {one.id for one in finding.rules_out} == {
        "policy-collapse", "damaged-weights", "learning-rate", "unsound-start", "num_generations=2",
    }  # fmt: skip
    assert "9 of 9 steps since are collapsed" in finding.summary
    said = Notice(kind="cache-dropped-by-checkpointing", text="Caching is incompatible", line=3)
    (finding,) = rollout_mode(Case(rows=log(WARM), notices=(said,)))
    assert (finding.confidence, finding.evidence["warnings"]) == ("strong", ["line 3: Caching is incompatible"])
    assert {one.id for one in examine(Case(rows=log(WARM))) if one.severity == "error"} == {"rollout-mode"}


@pytest.mark.parametrize(
    ("gaps", "expected"),
    [([], None), ([1e-7, 1e-6], True), ([1e-7, 1.0], False), ([1e-7, 1e-7, 1.0], True), ([None], False)],
)
def test_most_of_what_was_measured(gaps: list[float | None], expected: bool | None) -> None:
    rows: list[Row] = [{"step": i, "rollout/logprob_gap": gap} for i, gap in enumerate(gaps, 1)]
    assert agrees(Case(rows=[], settings=Settings(dtype="float32")), [*rows, {"step": 9}]) is expected
