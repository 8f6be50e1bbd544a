"""Counts of a run, against a table of six steps that can be counted by hand."""

from __future__ import annotations

import pytest

from core.health.case import Case, Sample
from core.health.examine import facts
from core.health.finding import Row

# Of steps 1 to 6 stand after an update 2, 5 and 6, after a skipped one 3 and 4.
UPDATE = (1, 0, 0, 1, 1, None)
VALID = (1.0, 0.0, 0.5, 1.0, 0.0, 0.0)  # all-invalid: 2, 5, 6, each after an update; 2 skipped, and 3 was sound


def rows() -> list[Row]:
    table: list[Row] = [{"step": 0, "eval/reward": 0.1}]
    for step, (update, valid) in enumerate(zip(UPDATE, VALID, strict=True), 1):
        table.append(
            {
                "step": step,
                "completions/valid": valid,
                "reward/mean": step / 10,
                **({} if update is None else {"update": update}),
            }
        )
    return table


def samples() -> tuple[Sample, ...]:
    """Two a step: both valid, one of them, or none."""
    return tuple(
        Sample(step=step, row=row, valid=row < 2 * valid) for step, valid in enumerate(VALID, 1) for row in (0, 1)
    )


def test_what_is_counted() -> None:
    # Valid: 2 + 0 + 1 + 2 + 0 + 0. After updates stand 2, 5, 6: six completions, none valid; after skips 3, 4: 1 of 4.
    assert facts(Case(rows=rows(), samples=samples())) == {
        "steps": 6, "last_step": 6, "updates": 3, "followed_updates": 3, "followed_skips": 2,
        "collapsed_after_update": 3, "collapsed_after_skip": 0, "collapsed_and_skipped": 1, "healed": 1,
        "samples": 12, "valid": 5, "samples_after_update": 6, "invalid_after_update": 6, "samples_after_skip": 4,
        "invalid_after_skip": 1, "reward/first": pytest.approx(0.35), "reward/last": pytest.approx(0.35),
    }  # fmt: skip


def test_what_is_not_known_is_not_told() -> None:
    assert facts(Case(rows=[])) == facts(Case(rows=[{"step": 0, "eval/reward": 1.0}])) == {}
    assert facts(Case(rows=[{"step": 3}])) == {"steps": 1, "last_step": 3}
    assert facts(Case(rows=[{"step": 1, "update": 1}, {"step": 2, "update": 0}])) == {
        "steps": 2, "last_step": 2, "updates": 1  # of what followed them nothing is known
    }  # fmt: skip
    assert facts(Case(rows=[{"step": 1}], samples=(Sample(step=1),))) == {"steps": 1, "last_step": 1, "samples": 1}


def test_counts_are_whole_numbers() -> None:
    found = facts(Case(rows=[{"step": 10.0, "update": 1.0}, {"step": 20.0, "update": 1.0}], averaged_over=10))
    assert found == {"steps": 20, "last_step": 20, "updates": 20}  # every row says that all of its steps made one
    assert {type(value) for value in found.values()} == {int}


def test_rewards_are_means_of_ten_rows() -> None:
    table: list[Row] = [{"step": step, "reward/mean": float(step)} for step in range(1, 21)]
    found = facts(Case(rows=[*table, {"step": 21}]))
    assert (found["reward/first"], found["reward/last"]) == (5.5, 15.5)  # of 1 to 10 and of 11 to 20


def test_a_row_that_stands_for_several_steps_says_nothing_of_one() -> None:
    """TRL logs every ten steps: nothing follows an update there."""
    table: list[Row] = [{"step": 10 * i, "update": i % 2, "completions/valid": 0.0} for i in range(1, 6)]
    found = facts(Case(rows=table, averaged_over=10, samples=(Sample(step=11, valid=False),)))
    assert found == {"steps": 50, "last_step": 50, "samples": 1, "valid": 0}
