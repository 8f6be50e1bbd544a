"""The early stop that was missed, against the rule that trains with it."""

from __future__ import annotations

import pytest

from core.config import EarlyStoppingSpec
from core.health.case import Case
from core.health.finding import Row
from core.health.missed_stop import early_stop, missed_stop, shortest_patience
from core.training.clock import wait


def rows(*rewards: float, completions: bool = False) -> list[Row]:
    """An evaluation every 10 steps from step 0 on, 16 completions a step."""
    return [
        {"step": 10 * i, "eval/reward": reward, **({"completions": 160 * i} if completions else {})}
        for i, reward in enumerate(rewards)
    ]


@pytest.mark.parametrize(
    ("rewards", "patience"),
    [
        ([0.1, 0.2, 0.3], 3),  # never waited: at least 3
        ([0.1, 0.0, 0.0, 0.0, 0.2], 4),  # three in a row without, then the best
        ([0.2, 0.1, 0.1, 0.1, 0.1], 3),  # what comes after the best does not count
        ([0.1, 0.1, 0.1, 0.1, 0.1, 0.2], 5),  # equal is no better
        ([0.1, 0.0, 0.0, 0.0, 0.2, 0.1, 0.3], 4),
        ([0.5], 3),
    ],
)
def test_the_shortest_patience_that_reaches_the_best(rewards: list[float], patience: int) -> None:
    assert shortest_patience(rewards) == patience


@pytest.mark.parametrize(
    "rewards",
    [(0.1, 0.5, 0.4, 0.4, 0.4, 0.4, 0.4), (0.1, 0.0, 0.0, 0.0, 0.2, 0.1, 0.1, 0.1, 0.1, 0.1), (0.5, *[0.1] * 9)],
)
def test_training_with_that_patience_stops_there(rewards: tuple[float, ...]) -> None:
    found = early_stop(rows(*rewards))
    assert found is not None
    spec = EarlyStoppingSpec(patience=found.patience)
    stops = (
        end
        for end in range(1, len(rewards) + 1)
        if (w := wait(rows(*rewards[:end]), spec)) and w.waited >= spec.patience
    )
    assert 10 * (next(stops) - 1) == found.stop_step
    assert found.best == max(rewards)


def test_its_numbers() -> None:
    (finding,) = missed_stop(Case(rows=rows(0.1, 0.5, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, completions=True)))
    # The best at step 10, three evaluations without a better one: step 40. Of 100 steps 60, 60 x 16 completions.
    assert (finding.id, finding.severity, finding.confidence) == ("missed-stop", "info", "certain")
    assert {name: finding.evidence[name] for name in ("best_step", "stop_step", "last_step", "steps_saved")} == {
        "best_step": 10, "stop_step": 40, "last_step": 100, "steps_saved": 60,
    }  # fmt: skip
    assert finding.evidence["completions_saved"] == 960
    assert finding.suggest == ("early_stopping.patience=3",)
    assert "60% of the steps, 960 completions" in finding.summary


@pytest.mark.parametrize(
    ("rewards", "found"),
    [
        ((0.1, 0.5, 0.4, 0.4, 0.4), False),  # it would stop at the last evaluation
        ((0.1, 0.2, 0.3, 0.4, 0.5, 0.6), False),  # the last is the best
        ((0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.1, 0.1, 0.1, 0.1), False),  # step 100 of 110: less than a fifth
        ((0.5, 0.4, 0.4, 0.4, 0.4), True),  # the start was the best; stop at 30 of 40: a quarter
        ((0.5,) * 9, False),  # no evaluation was the best one: the policy never moved, or the reward cannot tell
        ((0.5,), False),
        ((), False),
    ],
)
def test_what_is_worth_a_word(rewards: tuple[float, ...], found: bool) -> None:
    assert bool(missed_stop(Case(rows=rows(*rewards)))) == found


def test_a_run_that_goes_on_after_its_last_evaluation() -> None:
    (finding,) = missed_stop(Case(rows=[*rows(0.5, 0.4, 0.4, 0.4), {"step": 60}]))
    assert (finding.evidence["stop_step"], finding.evidence["steps_saved"]) == (30, 30)


def test_a_stop_that_would_keep_the_untrained_model_is_not_suggested() -> None:
    (finding,) = missed_stop(Case(rows=rows(0.5, *[0.4] * 9)))
    assert (finding.evidence["best_step"], finding.suggest) == (0, ())
    assert "untrained" in finding.advice
