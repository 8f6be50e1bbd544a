"""What functions said -> outcomes: weights, None, and what was lost."""

from __future__ import annotations

import math

import pytest

from core.config.task import RewardSpec
from core.tasks.custom.task import outcomes_of
from core.tasks.rewards.judge import Verdict

NAN = math.nan


def reward(name: str, weight: float = 1.0) -> RewardSpec:
    return RewardSpec(function=f"rewards:{name}", weight=weight)


def said(*values: float, lost: tuple[int, ...] = ()) -> Verdict:
    return Verdict(values=values, lost=frozenset(lost))


@pytest.mark.parametrize(
    ("a", "b", "total"),
    [
        (said(1.0), said(2.0), 1 * 1.0 + 0.5 * 2.0),  # weights 1 and 0.5
        (said(NAN), said(2.0), 0.5 * 2.0),  # None is left out
        (said(1.0), said(NAN), 1.0),
        (said(NAN), said(NAN), NAN),  # None of everything is missing
        (said(NAN, lost=(0,)), said(2.0), NAN),  # a lost function loses the row
        (said(1.0), said(NAN, lost=(0,)), NAN),
        (said(-1.0), said(0.0), -1.0),
    ],
)
def test_the_reward_is_the_weighted_sum(a: Verdict, b: Verdict, total: float) -> None:
    (outcome,) = outcomes_of([reward("a"), reward("b", 0.5)], {"a": a, "b": b}, ["text"], None)
    assert outcome.reward == pytest.approx(total, nan_ok=True)
    assert outcome.expected == pytest.approx(total, nan_ok=True)
    assert dict(outcome.parts) == pytest.approx({"a": a.values[0], "b": b.values[0]}, nan_ok=True)


def test_a_weight_of_nothing_is_only_logged() -> None:
    rewards = [reward("a"), reward("b", 0.0)]
    verdicts = {"a": said(1.0, NAN), "b": said(NAN, 5.0, lost=(0,))}
    first, second = outcomes_of(rewards, verdicts, ["x", "y"], None)
    assert first.reward == 1.0  # b was lost, and does not count
    assert math.isnan(second.reward)  # only b said something
    assert second.parts["b"] == 5.0


@pytest.mark.parametrize(
    ("value", "output", "above", "valid"),
    [
        (0.0, "text", None, True),
        (1.0, " \n", None, False),  # blank
        (0.5, "text", 0.5, False),
        (0.6, "text", 0.5, True),
        (NAN, "text", 0.0, True),  # missing is not bad
        (NAN, " ", 0.0, False),
    ],
)
def test_what_counts_as_valid(value: float, output: str, above: float | None, valid: bool) -> None:
    (outcome,) = outcomes_of([reward("a")], {"a": said(value)}, [output], above)
    assert outcome.valid is valid
