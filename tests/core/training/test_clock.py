"""A stage's clock, worked by hand: ticks before a step, where it ends, and whether an evaluation follows it."""

from __future__ import annotations

from typing import Any

import pytest

from core.health.finding import Row
from core.training.checkpoint import Progress
from core.training.clock import Clock, Spent, clock
from tests.fakes import grpo_stage, run_spec

EIGHT = Spent(completions=8, tokens=40)


def rows_of(*sampled: tuple[int, int], updates: str = "") -> list[Row]:
    """Rows 0, 1, ... of steps that sampled so many completions and tokens; `updates` has a 1 for each that updated."""
    rows: list[Row] = [{"step": 0, "completions": 0, "tokens": 0}]
    for step, (completions, tokens) in enumerate(sampled, start=1):
        before = rows[-1]
        rows.append(
            {
                "step": step,
                "update": float(updates[step - 1 : step] or 1),
                "completions": (before["completions"] or 0) + completions,
                "tokens": (before["tokens"] or 0) + tokens,
            }
        )
    return rows


def at(rows: list[Row], stage: int = 0, stage_step: int | None = None, **run: Any) -> Clock:
    """The clock after these rows. A stage is 2 x 4 = 8 completions a step, of at most 8 tokens each, over 10 ticks."""
    step = len(rows) - 1
    done = step if stage_step is None else stage_step
    return clock(run_spec(**run), Progress(step=step, stage=stage, stage_step=done, stage_updates=done), rows)


@pytest.mark.parametrize("step", [0, 1, 3, 9])
def test_without_a_budget_a_tick_is_a_step(step: int) -> None:
    found = at(rows_of(*[(8, 40)] * step))
    assert (found.index, found.position, found.updates, found.ended) == (step, step + 1, step, False)
    assert found.after(EIGHT).ended == (step == 9)


@pytest.mark.parametrize(
    ("budget", "sampled", "index", "position"),
    [
        # 80 completions are 10 ticks: 8 are one.
        ({"completions": 80}, [], 0, 1),
        ({"completions": 80}, [(8, 40)] * 3, 3, 4),
        # 24 with refills are three; the next step is taken to need none.
        ({"completions": 80}, [(24, 40)], 3, 4),
        # 160 completions: a step is half a tick. 8 completions: it is the whole of it.
        ({"completions": 160}, [(8, 40)] * 3, 1.5, 2),
        ({"completions": 8}, [], 0, 10),
        # 400 tokens are 10 ticks. The first step may have 8 x 8 = 64, taken to be a tick; then as many as the others.
        ({"tokens": 400}, [], 0, 1),
        ({"tokens": 400}, [(8, 40)] * 2, 2, 3),
        ({"tokens": 400}, [(8, 20), (8, 60), (8, 40)], 3, 4),
        ({"tokens": 400}, [(8, 20)], 0.5, 1),
        # 6400 tokens: the first step is 64 of them at most, a tenth of a tick.
        ({"tokens": 6400}, [], 0, 0.1),
    ],
)
def test_with_a_budget_a_tick_is_a_share_of_it(
    budget: dict[str, int], sampled: list[tuple[int, int]], index: float, position: float
) -> None:
    found = at(rows_of(*sampled), budget=budget)
    assert (found.index, found.position) == (index, position)


def test_only_steps_that_made_an_update_move_the_clock_of_updates() -> None:
    # 8, 24 and 16 completions of 80, an update on the first and the third: 24 of 80 are 3 of 10 ticks.
    rows = rows_of((8, 8), (24, 24), (16, 16), updates="101")
    found = at(rows, stage=0, stages={"grpo": grpo_stage(lr_clock="updates")}, budget={"completions": 80})
    assert (found.index, found.updates) == (6, 3)


TWO = {"stages": {"a": grpo_stage(max_steps=4), "b": grpo_stage()}}


def test_the_last_stage_has_what_the_others_left() -> None:
    # 4 steps took 40 of 120 completions: 80 are left for 10 ticks.
    rows = rows_of(*[(10, 0)] * 4)
    found = at(rows, stage=1, stage_step=0, **TWO, budget={"completions": 120})
    assert (found.index, found.position, found.left) == (0, 1, 80)
    found = at([*rows, {"step": 5, "completions": 56, "tokens": 0}], 1, 1, **TWO, budget={"completions": 120})
    assert (found.index, found.position, found.left) == (2, 3, 64)


def test_an_earlier_stage_counts_its_steps_and_ends_with_the_budget_at_the_latest() -> None:
    rows = rows_of((8, 0), (8, 0))
    found = at(rows, **TWO, budget={"completions": 24})
    assert (found.index, found.position, found.ended, found.spent_all) == (2, 3, False, False)
    assert found.after(Spent(completions=7)).ended is False
    assert found.after(Spent(completions=8)).spent_all
    roomy = at(rows_of(*[(8, 0)] * 3), **TWO, budget={"completions": 1000}).after(EIGHT)
    assert (roomy.ended, roomy.spent_all) == (True, False)


@pytest.mark.parametrize(
    ("used", "spent", "due"),
    [
        # Every 3 ticks of 10, 8 completions each: after 24, 48, 72 and 80.
        (0, 8, False),
        (16, 7, False),
        (16, 8, True),
        (23, 1, True),
        (24, 8, False),
        (16, 40, True),  # two at once are one
        (64, 8, True),
        (72, 7, False),
        (72, 8, True),
        (79, 30, True),
    ],
)
def test_an_evaluation_is_due_where_its_rhythm_was_passed(used: int, spent: int, due: bool) -> None:
    found = at(rows_of((used, 0)), budget={"completions": 80}, evaluation={"eval_steps": 3})
    assert found.due(Spent(completions=spent)) == due


def test_the_rhythm_of_evaluations_goes_on_over_stages() -> None:
    # Steps 1 to 4 are the first stage's, so of the second's ticks the 2nd, 5th and 8th are multiples of 3.
    rows = rows_of(*[(8, 0)] * 4)
    due = []
    for done in range(10):
        found = at([*rows, *({"step": 5 + i, "completions": 40 + 8 * i} for i in range(done))], 1, done, **TWO,
                   budget={"completions": 112}, evaluation={"eval_steps": 3})  # fmt: skip
        due.append(found.due(Spent(completions=8)))
    assert [tick for tick, is_due in enumerate(due, start=1) if is_due] == [2, 5, 8, 10]
