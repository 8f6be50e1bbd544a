"""What valid completions earn more than invalid ones, with the step as the unit."""

from __future__ import annotations

from math import sqrt
from random import Random

import pytest

from core.health.case import Case, Sample
from core.health.rules.rewards import gap, weak_reward

V, X = True, False


@pytest.mark.parametrize(
    ("earned", "value", "se"),
    [
        # Valid 1 and 0, mean 0.5; invalid 0. Each step moves the difference by +-0.5 / 2: se^2 = 2/1 * 2 * 0.25^2.
        ({1: [(V, 1.0), (X, 0.0)], 2: [(V, 0.0), (X, 0.0)]}, 0.5, 0.5),
        # An easy step and a hard one: both kinds share the step, so what it earns says nothing of the difference.
        ({1: [(V, 1.0), (X, 1.0)], 2: [(V, 0.0), (X, 0.0)]}, 0.0, 0.0),
        # The same rewards the other way round: step 1 moves by 0.25 + 0.25, step 2 by as much down.
        ({1: [(V, 1.0), (X, 0.0)], 2: [(V, 0.0), (X, 1.0)]}, 0.0, sqrt(2 * 2 * 0.5**2)),
        # A step of several completions of a kind moves it once, by all of them: (0.5 + 0.5) / 4 = 0.25.
        ({1: [(V, 1.0), (V, 1.0), (X, 0.0)], 2: [(V, 0.0), (V, 0.0), (X, 0.0)]}, 0.5, 0.5),
    ],
)
def test_the_difference_and_its_error(earned: dict[int, list[tuple[bool, float]]], value: float, se: float) -> None:
    found = gap(earned)
    assert (found.value, found.se) == (pytest.approx(value), pytest.approx(se))


def test_the_error_is_what_many_runs_scatter_by() -> None:
    """400 runs of 40 steps whose prompts differ: the standard error against the difference's scatter."""
    random = Random(7)
    runs = []
    for _ in range(400):
        hard = [random.random() for _ in range(40)]
        runs.append(gap({i: [(random.random() < 0.6, hard[i] + random.random()) for _ in range(4)] for i in range(40)}))
    mean = sum(run.value for run in runs) / 400
    scatter = sqrt(sum((run.value - mean) ** 2 for run in runs) / 400)
    assert sum(run.se for run in runs) / 400 == pytest.approx(scatter, rel=0.1)


def case(
    valid: float, invalid: float, *, steps: int = 60, shift: float = 0.0, invalid_rows: int = 3, rows: int = 6
) -> Case:
    """A valid completion earns 1 in `valid` of the cases, an invalid one in `invalid` of them, and 0 else."""
    random = Random(3)
    return Case(
        rows=[{"step": step} for step in range(1, steps + 1)],
        samples=tuple(
            Sample(
                step=step,
                group=f"S{row % 2}",
                valid=row >= invalid_rows,
                reward=shift + float(random.random() < (invalid if row < invalid_rows else valid)),
            )
            for step in range(1, steps + 1)
            for row in range(rows)
        ),
    )


@pytest.mark.parametrize(
    ("known", "found"),
    [
        (case(0.58, 0.50), True),  # P30's
        (case(0.58, 0.50, shift=-5.0), True),  # rewards may start anywhere
        (case(0.5, 0.6), True),  # the invalid ones earn more
        (case(0.6, 0.0), False),  # an invalid completion earns nothing
        (case(0.05, 0.0), False),  # a hard task: hardly anything is earned, but only by valid ones
        (case(0.9, 0.55), False),  # they keep more than half, and the difference is large
        (case(0.58, 0.50, steps=9, rows=60, invalid_rows=30), False),  # too few steps, however many completions
        (case(0.58, 0.50, steps=10, rows=60, invalid_rows=30), True),
        (case(0.58, 0.50, invalid_rows=0), False),  # no invalid ones
        (case(1.0, 1.0), False),  # all rewards are equal: another rule's
        (case(0.0, 0.0), False),
        (Case(rows=[]), False),
    ],
)
def test_when(known: Case, found: bool) -> None:
    assert [one.id for one in weak_reward(known)] == (["weak-reward"] if found else [])


def test_what_it_says() -> None:
    (found,) = weak_reward(case(0.58, 0.50))
    assert (found.severity, found.confidence) == ("warning", "moderate")
    e = {name: float(value) for name, value in found.evidence.items() if isinstance(value, (int, float))}
    assert e["difference"] == pytest.approx(e["valid"] - e["invalid"])
    assert e["kept"] == pytest.approx(e["invalid"] / e["valid"])  # the lowest reward is 0
    assert e["upper"] == pytest.approx(e["difference"] + 2 * e["se"])
    assert (e["steps"], e["samples"], e["groups"], e["mixed_groups"]) == (60, 360, 120, 120)
    assert f"an invalid completion earned {e['invalid']:.3f}" in found.summary


def test_a_small_difference_beyond_doubt_is_only_told() -> None:
    """0.4 and 0.55 on ten times the steps: some eight standard errors, and a third of a standard deviation."""
    (found,) = weak_reward(case(0.55, 0.40, steps=600))
    assert found.severity == "info"
    assert float(str(found.evidence["difference"])) > 3 * float(str(found.evidence["se"]))


def test_few_invalid_ones_are_no_concern() -> None:
    """30 of 360 is under a tenth; 60 of 360 is not."""
    few, some = (
        Case(
            rows=[],
            samples=tuple(
                Sample(step=step, valid=bool(row or step % every), reward=float((step // 2 + row) % 2))
                for step in range(1, 61)
                for row in range(6)
            ),
        )
        for every in (2, 1)
    )
    assert [bool(weak_reward(one)) for one in (few, some)] == [False, True]
