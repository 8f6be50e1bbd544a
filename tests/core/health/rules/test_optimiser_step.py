"""A gradient that is clipped before it is there, and old log-probs that are the new ones; and what looks like them."""

from __future__ import annotations

import pytest

from core.health.case import Case, Settings
from core.health.examine import examine
from core.health.finding import Row
from core.health.rules.optimiser_step import clip_before_backward, frozen_log_probs


def table(count: int, **columns: float | None) -> list[Row]:
    live = {"update": 1.0, "learning_rate": 1e-3, "loss": 0.1, "policy/ratio_max": 1.0, "groups/dead": 0.0}
    return [{"step": step, **live, "grad_norm": 0.5, **columns} for step in range(1, count + 1)]


def ours(rows: list[Row], updates: int = 2) -> Case:
    return Case(rows=rows, stages={"grpo": "grpo"}, settings=Settings(updates_per_rollout=updates))


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        (table(2, grad_norm=0.0) + table(1, grad_norm=0.0, **{"grad_share/policy": 1.0}), True),
        (table(3, grad_norm=0.0), False),  # nothing is learned from: no shares
        (table(3, grad_norm=0.0, **{"grad_share/policy": 0.0}), False),
        (table(3, grad_norm=0.0, **{"grad_share/policy": 1.0}) + table(1), False),  # it is clipped now and then
        (table(3, **{"grad_share/policy": 1.0}), False),
        (table(3, grad_norm=0.0, update=0.0, **{"grad_share/policy": 1.0}), False),  # no update
    ],
)
def test_a_gradient_that_is_clipped_before_it_is_there(rows: list[Row], found: bool) -> None:
    assert [finding.id for finding in clip_before_backward(ours(rows))] == ["clip-before-backward"] * found


def test_it_is_not_said_that_there_is_no_gradient() -> None:
    rows = table(20, grad_norm=0.0, **{"grad_share/policy": 1.0, "policy/ratio_max": 1.1})
    said = {finding.id for finding in examine(ours(rows))}
    assert "clip-before-backward" in said
    assert "no-gradient" not in said


@pytest.mark.parametrize(
    ("rows", "updates", "found"),
    [
        (table(5), 2, True),
        (table(5), 1, False),  # one update a rollout: 1 by construction
        (table(4), 2, False),
        (table(5) + table(1, **{"policy/ratio_max": 1.0000001}), 2, False),
        (table(5, learning_rate=0.0), 2, False),
        (table(5, grad_norm=0.0), 2, False),
        (table(5, update=0.0), 2, False),
        (table(5, **{"groups/dead": 0.5}), 2, False),  # perhaps one of two minibatches had a signal
        (table(5, **{"groups/discarded": 1.0}), 2, False),
        (table(5, **{"groups/dead": 0.5, "policy/ratio_max": 1.2}) + table(5), 2, True),
        (table(5, **{"policy/ratio_max": None}), 2, False),
    ],
)
def test_old_log_probs_that_are_the_new_ones(rows: list[Row], updates: int, found: bool) -> None:
    assert [finding.id for finding in frozen_log_probs(ours(rows, updates))] == ["frozen-log-probs"] * found


def test_a_log_of_another_trainer_may_have_rounded_it() -> None:
    case = Case(rows=table(9), settings=Settings(updates_per_rollout=4))
    assert frozen_log_probs(case) == ()
