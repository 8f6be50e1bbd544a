"""What is spent and what is left."""

from __future__ import annotations

from grpoctl.analysis.sweeps.budget import account
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
