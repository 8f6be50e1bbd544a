"""Collapse after updates that heals without one, or after an update at a rate of 0: P30's numbers, and genuine ones."""

from __future__ import annotations

from dataclasses import replace
from math import comb
from typing import Any

import pytest

from core.health.case import Case, Notice, Sample, Settings
from core.health.examine import examine
from core.health.finding import Finding, Row, StepTable
from core.health.rules.rollout_mode import Contrast, Standstill, agrees, contrast, fisher_p, rollout_mode, standstill


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


def counts(after_update: int, collapsed_after_update: int, after_skip: int, collapsed_after_skip: int) -> Contrast:
    return Contrast(
        after_update=after_update,
        collapsed_after_update=collapsed_after_update,
        after_skip=after_skip,
        collapsed_after_skip=collapsed_after_skip,
    )


def table_of(c: Contrast) -> StepTable:
    """Pairs of steps (an update or a skip, then its consequence) with these counts; between pairs, nothing is said."""
    consequences = [(1, False)] * (c.after_update - c.collapsed_after_update) + [(1, True)] * c.collapsed_after_update
    consequences += [(0, False)] * (c.after_skip - c.collapsed_after_skip) + [(0, True)] * c.collapsed_after_skip
    rows: list[Row] = [{"step": 0, "eval/valid": 0.0}]
    for update, collapsed in consequences:
        rows.append({"step": len(rows), "update": update, "completions/valid": 0.5})
        rows.append({"step": len(rows), "completions/valid": 0.0 if collapsed else 0.2})
    return rows


def the_finding(table: StepTable) -> Finding | None:
    return next(iter(rollout_mode(Case(rows=table))), None)


P30 = counts(38, 37, 56, 0)


def test_the_contrast_is_between_a_step_and_the_one_before() -> None:
    #       update  valid      after an update: steps 2, 3, 6 (collapsed: 2, 6); after a skip: 4, 5 (collapsed: 5)
    steps = [(1, 0.0), (1, 0.0), (0, 0.5), (0, 0.2), (1, 0.0), (0, 0.0)]
    rows: list[Row] = [{"step": 0, "eval/valid": 0.0}]
    rows += [{"step": i, "update": u, "completions/valid": v} for i, (u, v) in enumerate(steps, 1)]
    assert contrast(rows) == replace(counts(3, 2, 2, 1), collapsed_and_skipped=0)
    assert contrast([]) == contrast(rows[:2]) == counts(0, 0, 0, 0)


@pytest.mark.parametrize("c", [P30, counts(3, 1, 4, 2), counts(5, 0, 0, 0), counts(216, 200, 216, 196)])
def test_a_table_with_these_counts_is_counted_so(c: Contrast) -> None:
    assert contrast(table_of(c)) == c


@pytest.mark.parametrize(
    ("c", "ways", "of"),
    [
        # P30: of the C(94, 37) ways to place 37 collapses on 94 steps, C(38, 37) = 38 put all on steps after an update.
        (P30, 38, comb(94, 37)),
        # 2 + 2 steps, 2 collapses, both after updates: 1 way of C(4, 2) = 6.
        (counts(2, 2, 2, 0), 1, 6),
        # One after each: 2 * 2 ways, and the more extreme one: 5 of 6.
        (counts(2, 1, 2, 1), 5, 6),
        # None after updates: everything is at least as extreme.
        (counts(2, 0, 2, 2), 6, 6),
        (counts(3, 0, 4, 0), 1, 1),
    ],
)
def test_fisher(c: Contrast, ways: int, of: int) -> None:
    assert fisher_p(c) == pytest.approx(ways / of, rel=1e-12)


def test_p30_is_no_chance() -> None:
    assert fisher_p(P30) == pytest.approx(2e-25, rel=0.2)


def story(steps: str) -> StepTable:
    """Steps as letters: U healthy with an update, s healthy without, X all-invalid with an update, x without."""
    return [
        {"step": i, "update": int(letter in "UX"), "completions/valid": 0.0 if letter in "Xx" else 0.8}
        for i, letter in enumerate(steps, 1)
    ]


@pytest.mark.parametrize(
    ("steps", "found"),
    [
        ("Ux" * 30 + "s" * 5, True),  # 30 of 30 after an update, 0 of 34 after a skipped one; 30 of 30 healed
        ("Ux" * 26 + "UX" * 5 + "s" * 30, True),  # some all-invalid steps are updated on, as in P30's log
        ("Ux" * 30 + "UxxU" + "s" * 5, True),  # one of 32 did not heal at once
        ("Ux" * 4, False),  # p = 1 / C(7, 4) = 1 / 35: too few steps to tell
        ("UX" * 30, False),  # never a skipped update: nothing to compare with
        ("s" * 60, False),
        ("Us" * 40, False),  # healthy
        ("U" * 10 + "Ux" + "x" * 60, False),  # a genuine collapse does not heal
        ("Us" * 20 + "X" * 56, False),  # significant (55 of 75 against 1 of 20), but nobody saw it heal
        ("Us" * 20 + "Uxxx" + "X" * 50, False),  # seen, and it did not
        ("Us" * 40 + "UxUx", False),  # two healed: too few to say so
        ("U" + "X" * 9 + "x" + "s" * 30 + "Ux" + "sss", False),  # 11 of 11 against 0 of 35, and two healed: too few
    ],
)
def test_rollout_mode_needs_a_contrast_and_healing(steps: str, found: bool) -> None:
    finding = the_finding(story(steps))
    assert (finding is not None) == found
    if finding is not None:
        c = contrast(story(steps))
        assert (finding.id, finding.severity, finding.confidence) == ("rollout-mode", "warning", "moderate")
        assert "or prompts come in a fixed order" in finding.summary  # the counts alone cannot tell
        assert {name: finding.evidence[name] for name in Contrast.__dataclass_fields__} == {
            name: getattr(c, name) for name in Contrast.__dataclass_fields__
        }
        assert finding.evidence["p"] == fisher_p(c)
        assert f"{c.collapsed_after_update} of {c.after_update} steps after an update" in finding.summary


def test_healing_is_counted_on_all_invalid_steps_without_an_update() -> None:
    # x at 2 is followed by U (healed), x at 4 by x (not), x at 5 by s (healed), X at 7 was updated on (does not count).
    c = contrast(story("UxUxxsXx"))
    assert (c.collapsed_and_skipped, c.still_collapsed) == (3, 1)


def test_a_step_that_samples_nothing_is_on_neither_side() -> None:
    """Supervised steps before and between: the counts are those of the steps that drew something."""
    supervised: list[Row] = [{"step": -i, "update": 1} for i in range(50, 0, -1)]
    table = [{**row, "step": i} for i, row in enumerate([*supervised, *story("Ux" * 30 + "s" * 5)], 1)]
    found = contrast(table)
    assert (found.after_update, found.collapsed_after_update) == (31, 30)  # one follows the last supervised update
    assert the_finding(table) is not None
    assert contrast(table[:50]).after_update == 0


FAULT = story("Ux" * 30 + "s" * 5)


def found_in(rows: StepTable, notices: tuple[Notice, ...] = (), **settings: Any) -> Finding:
    (found,) = rollout_mode(Case(rows=rows, notices=notices, settings=Settings(**settings)))
    return found


def why(found: Finding) -> dict[str, str]:
    return {one.id: one.why for one in found.rules_out}


def test_steps_that_do_not_follow_each_other_say_nothing() -> None:
    """Every other row left out of a sound run with updates: what is next in the table is not next in the run."""
    assert contrast([row for row in FAULT if (row["step"] or 0) % 2]).after_update == 0
    assert rollout_mode(Case(rows=[{**row, "step": 10 * (row["step"] or 0)} for row in FAULT])) == ()
    assert rollout_mode(Case(rows=FAULT, averaged_over=2)) == ()


def test_healing_rules_out_the_weights() -> None:
    found = found_in(FAULT)
    assert set(why(found)) == {"policy-collapse", "damaged-weights", "learning-rate", "group-size"}
    assert all("30 of 30 all-invalid steps" in text for text in why(found).values())
    assert found.evidence["healed"] == 30
    assert "lr_0_step" not in found.evidence
    assert found.decider is not None
    assert found.decider.overrides == ("guards.rollout_integrity=stop",)


@pytest.mark.parametrize(
    ("rates", "first_update_lr", "counted"),
    [
        ({1: 0.0}, None, (1, 1, 1)),  # the rows say it
        ({}, 0.0, (1, 1, 1)),  # the settings say it of the first update, which is step 1's
        ({1: 0.0, 3: 0.0, 5: 1e-6}, None, (1, 2, 2)),
        ({1: 1e-6}, None, None),
        ({}, 1e-6, None),
    ],
)
def test_an_update_that_moves_nothing(
    rates: dict[int, float], first_update_lr: float | None, counted: tuple[int, int, int] | None
) -> None:
    rows: list[Row] = [
        {**row, **({"learning_rate": rates[step]} if (step := int(row["step"] or 0)) in rates else {})} for row in FAULT
    ]
    found = found_in(rows, first_update_lr=first_update_lr, num_generations=2)
    names = ("lr_0_step", "updates_at_lr_0", "collapsed_after_lr_0")
    assert tuple(found.evidence[name] for name in names if name in found.evidence) == (counted or ())
    for cause in ("damaged-weights", "learning-rate", "num_generations=2"):
        assert ("(step 1) had a learning rate of exactly 0" in why(found)[cause]) == (counted is not None)
    assert found.decider is not None
    assert found.decider.overrides[0] == "num_generations=2"


def test_a_later_update_that_moves_nothing_counts_too() -> None:
    rows: list[Row] = [{**row, "learning_rate": 0.0 if row["step"] == 3 else 1e-6} for row in FAULT]
    assert "the update of step 3 had" in why(found_in(rows))["learning-rate"]


def test_an_update_at_rate_zero_that_nothing_followed_is_no_argument() -> None:
    """The first update's step is followed by a sound one here: it shows nothing."""
    rows = story("Us" + "Ux" * 30 + "s" * 5)
    found = found_in(rows, first_update_lr=0.0)
    assert (found.evidence["updates_at_lr_0"], found.evidence["collapsed_after_lr_0"]) == (1, 0)
    assert "30 of 30" in why(found)["damaged-weights"]


def test_the_first_update_of_a_tail_is_not_the_first() -> None:
    rows: list[Row] = [{**row, "step": (row["step"] or 0) + 50} for row in FAULT]
    assert "lr_0_step" not in found_in(rows, first_update_lr=0.0).evidence


def test_what_libraries_printed_is_support_and_no_proof() -> None:
    said = Notice(kind="cache-dropped-by-checkpointing", text="Caching is incompatible", line=7, step=2)
    wrote = Notice(kind="unparsed-output", text="1. 1. 1.", line=9, step=2)
    found = found_in(FAULT, (said, wrote))
    assert found.evidence["warnings"] == ["line 7: Caching is incompatible"]
    assert found.evidence["texts"] == ["line 9: 1. 1. 1."]
    assert rollout_mode(Case(rows=story("Us" * 40), notices=(said,))) == ()


REPEATED, PLAIN = "1. 11. 1. 1. 11. 1.", "first add the two numbers then halve"


def collapsed_texts(broken: str, sound: str) -> tuple[Sample, ...]:
    return tuple(
        Sample(step=int(row["step"] or 0), text=broken if valid == 0.0 else sound, valid=valid != 0.0)
        for row in FAULT
        if (valid := row["completions/valid"]) is not None
    )


CHECKPOINTING = Notice(kind="cache-dropped-by-checkpointing", text="Caching is incompatible")


@pytest.mark.parametrize(
    ("case", "sure"),
    [
        (Case(rows=FAULT), False),
        (Case(rows=FAULT, notices=(CHECKPOINTING,)), False),  # a sound run prints it too
        (Case(rows=FAULT, settings=Settings(first_update_lr=0.0)), True),
        (Case(rows=FAULT, settings=Settings(first_update_lr=1e-6)), False),
        (Case(rows=FAULT, notices=(Notice(kind="unparsed-output", text=REPEATED),)), True),
        (Case(rows=FAULT, notices=(Notice(kind="unparsed-output", text=PLAIN),)), False),
        (Case(rows=FAULT, samples=collapsed_texts(REPEATED, PLAIN)), True),
        (Case(rows=FAULT, samples=collapsed_texts(REPEATED, REPEATED)), False),  # the language repeats itself anyway
        (Case(rows=FAULT, samples=collapsed_texts(PLAIN, PLAIN)), False),
    ],
)
def test_the_counts_alone_may_be_the_order_of_prompts(case: Case, sure: bool) -> None:
    (found,) = rollout_mode(case)
    assert (found.severity, found.confidence) == (("error", "strong") if sure else ("warning", "moderate"))
    assert ("fixed order" in found.summary) != sure


@pytest.mark.parametrize(
    ("gap", "dtype", "severity"),
    [
        (1e-7, "float32", None),  # sampler and trainer agree on the collapsed steps: it is their prompts
        (4.0, "float32", "error"),
        (None, "float32", "error"),  # no number
        (0.02, "bfloat16", None),
        (0.02, "float32", "error"),
        (0.02, None, None),  # unknown: the coarser one accuses no sampler
    ],
)
def test_a_gap_that_was_measured_decides(gap: float | None, dtype: str | None, severity: str | None) -> None:
    rows = [{**row, "rollout/logprob_gap": gap if row["completions/valid"] == 0.0 else 1e-7} for row in FAULT]
    found = rollout_mode(Case(rows=rows, settings=Settings(dtype=dtype)))
    assert [one.severity for one in found] == ([] if severity is None else [severity])
    if gap is None or gap > 0.1:  # measured elsewhere only: nothing is known of the collapsed steps
        (left,) = rollout_mode(
            Case(rows=[row if row["rollout/logprob_gap"] == 1e-7 else FAULT[i] for i, row in enumerate(rows)])
        )
        assert left.severity == "warning"


def test_a_few_rescued_completions_hide_no_collapse() -> None:
    """One of sixteen is valid on every step after an update: 0.0625, less than a tenth. A tenth is not less."""
    rescued = [{**row, "completions/valid": row["completions/valid"] or 1 / 16} for row in FAULT]
    found = found_in(rescued)
    assert all(fact in found.summary for fact in ("30 of 30 steps after an update", "less than 10% valid", "0 of 34"))
    assert tuple(found.evidence[name] for name in ("collapsed_and_skipped", "still_collapsed")) == (30, 0)
    assert (
        rollout_mode(Case(rows=[{**row, "completions/valid": row["completions/valid"] or 0.1} for row in FAULT])) == ()
    )


def test_a_long_run_is_counted_at_once() -> None:
    """Ten thousand steps, half of them collapsed: binomials of that size, one by one, would take seconds."""
    assert fisher_p(counts(5000, 2600, 5000, 2400)) == pytest.approx(3.4e-5, rel=0.1)
