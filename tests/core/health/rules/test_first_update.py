"""A collapse right after the first update: logs of a few steps, what speaks for the sampler, and what does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.health.case import Case, Notice, Sample, Settings
from core.health.examine import examine
from core.health.finding import Finding, Row
from core.health.rules.first_update import collapse_at_first_update, first_update

ONCE = Notice(kind="cache-disabled-by-checkpointing", text="`use_cache=True` is incompatible", line=7, step=4)
DROPPED = Notice(kind="cache-dropped-by-checkpointing", text="Caching is incompatible", line=9, step=5)
UNMOVED = Settings(num_generations=2, prompts_per_step=3, first_update_lr=0.0)


def story(steps: str, first: int = 3) -> list[Row]:
    """s: sound, x: all invalid; a capital made an update. One step a letter."""
    return [
        {"step": i, "update": int(letter.isupper()), "completions/valid": float(letter in "sS")}
        for i, letter in enumerate(steps, first)
    ]


def samples(rows: list[Row], broken: str = "1. 11. 1. 1. 11. 1.", prompts: int = 3) -> tuple[Sample, ...]:
    """Two completions of each prompt."""
    return tuple(
        Sample(
            step=int(row["step"] or 0), group=f"{row['step']}-{prompt}", valid=row["completions/valid"] == 1.0,
            text="first add the two numbers then halve" if row["completions/valid"] else broken,
        )
        for row in rows
        for prompt in range(prompts)
        for _ in range(2)
    )  # fmt: skip


CUT = story("sSx")  # steps 3, 4, 5: the update is step 4's
WHOLE = Case(rows=CUT, samples=samples(CUT), notices=(ONCE, DROPPED), settings=UNMOVED)


def graded(case: Case) -> list[tuple[str, str]]:
    return [(one.severity, one.confidence) for one in collapse_at_first_update(case)]


def only(case: Case) -> Finding:
    (found,) = collapse_at_first_update(case)
    assert found.id == "rollout-mode"
    return found


def test_three_steps_with_everything() -> None:
    found = only(WHOLE)
    assert (found.severity, found.confidence) == ("error", "moderate")
    assert {one.id for one in found.rules_out} >= {"policy-collapse", "learning-rate", "num_generations=2"}
    assert "learning rate of exactly 0" in found.summary
    counts = [found.evidence[name] for name in ("completions_before", "completions_after", "first_update_step")]
    assert counts == [12, 6, 4]
    assert found.evidence["p"] == pytest.approx(1 / 84)  # 3 prompts of 9 are the last 3: 1 / C(9, 3)
    assert examine(WHOLE)[0] == found


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        (replace(WHOLE, samples=(), notices=(ONCE,)), [("error", "moderate")]),
        (replace(WHOLE, notices=(ONCE,), samples=()), [("error", "moderate")]),
        (replace(WHOLE, settings=Settings()), [("warning", "moderate")]),  # the lines alone
        (replace(WHOLE, settings=Settings(), notices=()), []),  # nothing speaks for the sampler
        (replace(WHOLE, notices=()), []),  # nobody says that step 4 is the first update of its process
        (replace(WHOLE, notices=(replace(ONCE, step=3),)), []),  # it trained before
        (replace(WHOLE, rows=story("sSx", first=1), notices=()), [("error", "moderate")]),  # the log begins at step 1
    ],
)
def test_what_it_takes(case: Case, expected: list[tuple[str, str]]) -> None:
    shifted = replace(case, samples=samples(list(case.rows))) if case.samples else case
    assert graded(shifted) == expected


def test_the_same_with_a_rate_that_is_not_0() -> None:
    moved = [{**row, "learning_rate": 1e-6} if row["update"] else row for row in CUT]
    assert graded(replace(WHOLE, rows=moved, notices=())) == []
    assert graded(replace(WHOLE, rows=moved)) == [("warning", "moderate")]  # the lines are there
    assert not only(replace(WHOLE, rows=moved)).rules_out  # and the rate may have done it


@pytest.mark.parametrize(
    ("steps", "found"),
    [
        ("sSx", True),
        ("Sx", True),
        ("SXx", True),
        ("sSxS", True),  # it healed without an update
        ("sSs", False),
        ("xSx", False),  # it was broken before
        ("sSxXsSsSs", False),  # two later updates were followed by sound steps
        ("sSxSxSx", True),
    ],
)
def test_the_steps(steps: str, found: bool) -> None:
    rows = story(steps, first=1)
    assert bool(collapse_at_first_update(Case(rows=rows, settings=UNMOVED))) == found
    assert collapse_at_first_update(Case(rows=rows)) == ()
    assert collapse_at_first_update(Case(rows=rows, settings=UNMOVED, averaged_over=10)) == ()


def test_one_prompt_may_be_a_hard_one() -> None:
    """One prompt a step, nothing but the rate: 1 of 2 by chance. A gap that is rounding refutes it."""
    rows = story("Sx", first=1)
    known = Settings(first_update_lr=0.0, num_generations=6, prompts_per_step=1)
    case = Case(rows=rows, samples=samples(rows, broken="no", prompts=1), settings=known)
    assert graded(case) == [("warning", "moderate")]
    assert only(case).evidence["p"] == pytest.approx(0.5)
    assert "hard ones" in only(case).summary
    measured = [{**row, "rollout/logprob_gap": 1e-7} for row in rows]
    assert graded(replace(case, rows=measured)) == []


def test_a_rate_that_rows_tell() -> None:
    """A warm-up from 0 in a log that has no validity: 2 % cut off and then all. Three steps of it."""
    table: list[Row] = [
        {"step": i, "learning_rate": 1e-8 * (i - 1), "completions/truncated": share}
        for i, share in enumerate((0.02, 1.0, 1.0), 1)
    ]
    assert graded(Case(rows=table)) == [("warning", "moderate")]
    assert graded(Case(rows=[{**row, "learning_rate": 0.0} for row in table])) == []  # rates may be rounded
    assert graded(Case(rows=[{**row, "learning_rate": 1e-6} for row in table])) == []


def test_healing_of_text_that_repeats_itself() -> None:
    """No first update is known: after updates all-invalid and repetitive, sound without one."""
    rows = story("SxSxs", first=51)
    assert graded(Case(rows=rows, samples=samples(rows))) == [("warning", "weak")]
    assert graded(Case(rows=rows, samples=samples(rows, broken="no"))) == []


def test_where_it_stands() -> None:
    seen = first_update(WHOLE)
    assert seen is not None
    assert (seen.step, seen.before, seen.after, seen.at_rate_0, seen.repetitive) == (4, (1.0, 1.0), 0.0, True, True)
