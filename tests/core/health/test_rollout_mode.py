"""Collapse after updates that heals without one: P30's numbers, and a genuine collapse beside them."""

from __future__ import annotations

from dataclasses import replace
from math import comb

import pytest

from core.health.finding import Row, StepTable
from core.health.rollout_mode import Contrast, contrast, fisher_p, rollout_mode


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
    ],
)
def test_rollout_mode_needs_a_contrast_and_healing(steps: str, found: bool) -> None:
    finding = rollout_mode(story(steps))
    assert (finding is not None) == found
    if finding is not None:
        c = contrast(story(steps))
        assert (finding.id, finding.severity) == ("rollout-mode", "error")
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
    assert rollout_mode(table) is not None
    assert contrast(table[:50]).after_update == 0
