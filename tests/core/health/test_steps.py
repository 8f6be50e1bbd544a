"""Before and after the first update, and when a column has left its start."""

from __future__ import annotations

import pytest

from core.health.finding import Row
from core.health.steps import acted, ends_of, learns_from_samples, onset, parted, precedence_p, spread


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


@pytest.mark.parametrize(
    ("losses", "told"),
    [
        ([0.003, 0.002, 0.01], True),  # around 0 from the first row on: centred advantages
        ([0.5, -0.001], True),  # no cross-entropy is negative
        ([1.5, 0.4, 0.004], False),  # what supervised training looks like
        ([0.69, 0.3], False),
        ([], False),
    ],
)
def test_losses_alone_say_whether_a_policy_learns_from_its_samples(losses: list[float], told: bool) -> None:
    rows: list[Row] = [{"step": step, "loss": loss} for step, loss in enumerate(losses, 1)]
    assert learns_from_samples(rows) is told
    assert not learns_from_samples([*rows, {"rewards/chosen": 0.1, "loss": -1.0}])  # DPO
    assert learns_from_samples([*rows, {"kl": 0.1}])


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


def test_the_ends_of_a_column_are_a_fifth_each() -> None:
    rows: list[Row] = [{"step": float(step), "kl": float(step)} for step in range(1, 11)]
    assert ends_of(rows, "kl", least=6) == ([1.0, 2.0], [9.0, 10.0])
    assert ends_of(rows[:3], "kl", least=2) == ([1.0], [3.0])
    assert ends_of(rows[:3], "kl", least=6) == ([], [])
