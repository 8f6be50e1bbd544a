"""What is spent and what is left."""

from __future__ import annotations

import pytest

from grpoctl.analysis.sweeps.budget import account, mean_curve, near, seed_curves
from grpoctl.analysis.sweeps.ranking import ranked
from tests.studies import study, trial


def test_completions_spent_and_left() -> None:
    trials = [
        trial(0, [0.5, 0.5], completions=2000),
        trial(1, [0.3, None], "PRUNED", completions=500),
        trial(2, [None, None], "RUNNING", completions=0),
    ]
    document = study(trials, budget={"completions": 1000, "tokens": None}, total=5)
    found = account(document, {2: 0.25})
    assert (found.unit, found.ended, found.total) == ("completions", 2, 5)
    assert found.spent == 2000 + 500 + 0.25 * 2000
    assert found.left == 3 * 2000 - 500
    assert found.likely == 3 * (2500 / 2) - 500  # ended trials spent 1,250 each
    assert found.by_status == {"COMPLETED": 1, "PRUNED": 1, "RUNNING": 1}


def test_without_a_budget_trials_are_counted() -> None:
    document = study([trial(0, [0.5, 0.5])], budget={"completions": None, "tokens": None}, total=4)
    found = account(document, {1: 0.5})
    assert (found.unit, found.spent, found.left) == ("trials", 1.5, 2.5)


def test_before_the_first_trial() -> None:
    found = account({"total": 3, "trials": [], "seeds": [0, 1], "budget": {"tokens": 100}})
    assert (found.unit, found.spent, found.left, found.likely) == ("tokens", 0, 600, 600)


def test_a_report_at_the_very_end_belongs_to_its_own_seed() -> None:
    # units: seed's index + share; 1.0 is seed 0's end, 1.5 the middle of seed 1
    assert seed_curves([[0, 0.5, 1.0], [0, 1.0, 2.0], [1, 0.5, 3.0], [1, 1.0, 4.0]]) == [
        ((0.5, 1.0), (1.0, 2.0)),
        ((0.5, 3.0), (1.0, 4.0)),
    ]


def test_the_mean_over_seeds_is_read_along_straight_lines() -> None:
    # seed 0: 1 at 0.5 and 3 at 1.0; seed 1: 5 at 0.75 and 7 at 1.0
    curve = mean_curve([[0, 0.5, 1.0], [0, 1.0, 3.0], [1, 0.75, 5.0], [1, 1.0, 7.0]])
    assert curve == ((0.5, 1.0), (0.75, pytest.approx((2 + 5) / 2)), (1.0, 5.0))


def test_the_first_evaluation_and_the_first_trial_that_near() -> None:
    best = trial(2, [1.0], curve=[[0, 0.5, 0.97], [0, 0.75, 0.985], [0, 1.0, 1.0]], completions=100)
    close = trial(1, [0.99], curve=[[0, 0.5, 0.98], [0, 1.0, 0.99]], completions=100)
    poor = trial(0, [0.5], curve=[[0, 1.0, 0.5]], completions=100)
    document = study([poor, close, best], budget={"completions": 100, "tokens": None})
    reached = near(document, ranked(document["trials"]), sign=1.0)
    assert reached is not None
    assert reached.threshold == pytest.approx(0.98)  # 1.0 less 2 %
    assert reached.per_run == {1: 50.0, 2: 75.0}
    assert (reached.first, reached.spent, reached.total) == (1, 200.0, 300.0)


def test_less_may_be_better() -> None:
    trials = [trial(0, [1.0], curve=[[0, 1.0, 1.0]]), trial(1, [1.015], curve=[[0, 0.5, 1.5], [0, 1.0, 1.015]])]
    document = study(trials, direction="minimize")
    reached = near(document, ranked(trials, direction="minimize"), sign=-1.0)
    assert reached is not None
    assert (reached.threshold, reached.per_run) == (pytest.approx(1.02), {0: 1024.0, 1: 1024.0})


def test_one_that_collapsed_after_it_came_near_is_no_bargain() -> None:
    good = trial(0, [1.0], curve=[[0, 0.5, 0.9], [0, 1.0, 1.0]])
    collapsed = trial(1, [0.0], "COLLAPSED", curve=[[0, 0.25, 0.99]])
    reached = near(study([good, collapsed]), ranked([good, collapsed]), sign=1.0)
    assert reached is not None
    assert reached.per_run == {0: 1024.0}


def test_nothing_ranked_nothing_reached() -> None:
    assert near(study([]), ranked([]), sign=1.0) is None
