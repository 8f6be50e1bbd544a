"""Steps whose reward is no number: said even of one, and never of a reward that was not recorded."""

from __future__ import annotations

import math

import pytest

from core.health.case import Case
from core.health.examine import examine
from core.health.finding import Row
from core.health.rules.rewards import lost_rewards


def rows(*rewards: float | None) -> list[Row]:
    return [{"step": step, "reward/mean": reward} for step, reward in enumerate(rewards, 1)]


@pytest.mark.parametrize("lost", [None, math.nan, math.inf])
def test_no_reward_at_all_is_an_error(lost: float | None) -> None:
    (finding,) = lost_rewards(Case(rows=rows(lost, lost)))
    assert (finding.id, finding.severity, finding.confidence) == ("lost-rewards", "error", "certain")
    assert finding.evidence == {"steps": 2, "of": 2, "first": 1}
    assert finding.summary.startswith("the mean reward is not a finite number on 2 of 2 steps: ")
    assert finding in examine(Case(rows=rows(lost, lost)))


def test_a_single_one_is_a_warning() -> None:
    (finding,) = lost_rewards(Case(rows=rows(0.5, 0.5, None, 0.5)))
    assert (finding.severity, finding.evidence) == ("warning", {"steps": 1, "of": 4, "first": 3})
    assert "on 1 of 4 steps (first at step 3)" in finding.summary


def test_it_is_silent_where_nothing_is_lost() -> None:
    table: list[Row] = [
        {"step": 0, "reward/mean": None},  # before training
        {"step": 1, "loss": 0.1},  # not recorded: a supervised step, or an empty cell
        {"step": 2, "reward/mean": None, "reward/missing": 1.0},  # missing-rewards counts that
        {"step": 3, "reward/mean": 0.0},
    ]
    assert lost_rewards(Case(rows=table)) == ()
    assert lost_rewards(Case(rows=[])) == ()
