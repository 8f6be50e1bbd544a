"""Limits broken for good, after sound steps, and whom it harmed."""

from __future__ import annotations

import random

import pytest

from core.config import GuardSpec
from core.health.case import Case
from core.health.finding import Row
from core.health.rules.breaks import Break, breaks, drawn, harmed
from core.health.rules.policy_collapse import policy_collapse

GUARDS = GuardSpec(patience=3)


def case(*valid: float | None, **more: float) -> Case:
    """Steps with these shares of valid completions."""
    rows: list[Row] = [{"step": i, "completions/valid": value, **more} for i, value in enumerate(valid, 1)]
    return Case(rows=rows, guards=GUARDS)


@pytest.mark.parametrize(
    ("valid", "first"),
    [
        ([0.9] * 6 + [0.0] * 3, 7),  # as a guard leaves it
        ([0.9] * 6 + [0.0] * 2, None),
        ([0.9] * 6 + [0.0] * 3 + [0.5], None),  # (0.9 + 0.05) / 2 = 0.475 is half way back: 1 of 4 is
        ([0.9] * 6 + [0.0] * 4 + [0.5], 7),  # 1 of 5
        ([0.9] * 6 + [0.0] * 3 + [0.4] * 9, 7),  # not half way
        ([0.9] * 6 + [0.4] + [0.0] * 3, 7),  # on the way down
        ([0.9] * 4 + [0.0, 0.9] * 2 + [0.0] * 4, None),  # 2 of 8 were as bad before
        ([0.9] * 8 + [0.0, 0.9] * 2 + [0.0] * 4, 13),  # 2 of 12
        ([0.9, 0.0, 0.9] + [0.0] * 9, 4),
        ([0.3] + [0.0] * 9 + [0.3], None),  # one step may have been luck: a later one was as good
        ([0.3] + [0.0] * 9 + [0.1], 2),
        ([0.0] * 9, None),  # never sound
        ([0.0] * 3 + [0.9] * 9, None),  # learned
        ([None, 0.9, 0.9, None, 0.0, 0.0, None, 0.0], 5),  # what has no number says nothing
    ],
)
def test_from_when_on(valid: list[float | None], first: int | None) -> None:
    assert [one.first for one in breaks(case(*valid))] == ([] if first is None else [first])


def test_which_steps_have_drawn() -> None:
    rows: list[Row] = [{"step": 0, "eval/valid": 1.0}, {"step": 1, "loss": 2.0}, {"step": 2, "reward/mean": 0.5}]
    assert drawn(Case(rows=rows)) == rows[2:]


def test_what_is_said_of_it() -> None:
    (found,) = breaks(case(0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.0, 0.0, 0.0, 0.1))
    facts = (
        "completions/valid",
        "0.05",
        "75%",
        "step 7",
        "0.1",
    )
    assert [fact for fact in facts if fact not in str(found)] == []
    harm = harmed(found)
    assert harm is not None
    assert harm.index("90%") < harm.index("2%")  # from, to: (0 + 0 + 0 + 0.1) / 4


def cut(before: list[float], since: list[float]) -> Break:
    """All completions cut off after steps with these rewards."""
    rows: list[Row] = [
        {"step": i, "reward/mean": reward, "completions/truncated": float(i > len(before))}
        for i, reward in enumerate([*before, *since], 1)
    ]
    (found,) = breaks(Case(rows=rows, guards=GUARDS))
    return found


@pytest.mark.parametrize(
    ("before", "since", "harm"),
    [
        ([0.5, 0.6] * 5, [0.1, 0.2] * 5, True),
        ([0.5, 0.6] * 5, [0.6, 0.7] * 5, False),
        ([0.1, 0.2] * 5 + [0.8, 0.9] * 5, [0.5, 0.6] * 5, True),  # against the best stretch, not against all
        ([0.1, 0.9] * 5, [0.0, 0.8] * 5, False),  # 0.1 lower, where one step is 0.4 off
        ([-0.1, -0.2] * 5, [-0.8, -0.9] * 5, True),
        ([-0.8, -0.9] * 5, [-0.1, -0.2] * 5, False),
        ([0.5] * 10, [0.1] * 4, False),  # too few steps know no spread
    ],
)
def test_whether_the_reward_fell(before: list[float], since: list[float], harm: bool) -> None:
    assert bool(harmed(cut(before, since))) == harm


def test_whom_it_harmed_is_not_known() -> None:
    rows: list[Row] = [{"step": i, "kl": 20.0 * (i > 9)} for i in range(1, 20)]
    (found,) = breaks(Case(rows=rows, guards=GUARDS))
    assert harmed(found) is None


@pytest.mark.parametrize("hard", [0.2, 0.3, 0.5])
def test_prompts_of_which_some_are_never_valid_are_no_collapse(hard: float) -> None:
    # One prompt a step, 60 steps: all completions of it are valid, or none. At 0.5 five in a row are no rarity.
    found = 0
    for seed in range(100):
        draw = random.Random(seed)
        valid = [0.0 if draw.random() < hard else 0.9 for _ in range(60)]
        found += bool(policy_collapse(Case(rows=case(*valid, update=1.0).rows)))
    assert found <= 2


def test_harm_is_measured_inside_a_stage() -> None:
    # Entropy is gone from step 11 of stage 0 on, whose reward stays; stage 1 asks harder prompts.
    rows: list[Row] = [
        {
            "step": i,
            "update": 1,
            "stage": i > 20,
            "entropy": 0.5 if i <= 10 else 1e-4,
            "reward/mean": 0.8 - 0.6 * (i > 20),
        }
        for i in range(1, 81)
    ]
    (found,) = breaks(Case(rows=rows, guards=GUARDS))
    assert (found.first, len(found.before), len(found.since), harmed(found)) == (11, 10, 10, "")
    (said,) = policy_collapse(Case(rows=rows, guards=GUARDS))
    assert (said.id, said.severity) == ("converged", "info")
    (said,) = policy_collapse(Case(rows=[{**row, "stage": 0} for row in rows], guards=GUARDS))
    assert said.severity == "error"  # in one stage it would be harm: 0.8, then 0.8 ten times and 0.2 sixty times
    # From its first step on: no update of that stage did it.
    late = [{**row, "entropy": 0.5 if (row["step"] or 0) <= 20 else 1e-4} for row in rows]
    assert policy_collapse(Case(rows=late, guards=GUARDS)) == ()
