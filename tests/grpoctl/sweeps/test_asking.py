"""Which trials one learns from: with P at a time, those up to n - P, whatever else has ended by then."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpoctl.runs.status import TrialStatus
from grpoctl.sweeps.driver import Asking
from grpoctl.sweeps.pruning import decide
from grpoctl.sweeps.spec import SweepSpec
from grpoctl.sweeps.state import Book, Point, TrialRecord

LR = "stages.grpo.learning_rate"
SWEEP = SweepSpec.model_validate(
    {
        "name": "mine", "title": "t", "experiment": "p31", "axes": {LR: {"low": 1e-4, "high": 1e-2, "log": True}},
        "seeds": [0], "pruner": {"name": "patient-median", "patience": 1, "warmup": 0, "min_trials": 1},
        "direction": "minimize", "worst": 1,
    }
)  # fmt: skip


def trial(number: int, status: str = "COMPLETED", value: float = 0.5) -> TrialRecord:
    """Its one run came to `value`."""
    return TrialRecord(
        number=number, params={LR: 1e-4 * (number + 1)}, seeds=(0,), status=TrialStatus(status), score=value,
        values=(value,), curve=(Point(0, 0.5, value), Point(0, 1.0, value)),
    )  # fmt: skip


def asking(trials: list[TrialRecord], lag: int | None) -> Asking:
    return Asking(SWEEP, Book(Path("no-such-file"), {}, {one.number: one for one in trials}), lag)


@pytest.mark.parametrize(
    ("lag", "under_way", "ready"),
    [
        (1, {3}, False),  # one at a time: of trials 0 to 3
        (2, {3}, True),  # two: of 0 to 2
        (2, {2}, False),
        (3, {2, 3}, True),  # three: of 0 and 1
        (3, {1}, False),
        (9, {0, 1, 2, 3}, True),  # of none
        (None, {0, 1, 2, 3}, True),
    ],
)
def test_a_trial_waits_for_those_it_learns_from_and_for_no_others(
    lag: int | None, under_way: set[int], ready: bool
) -> None:
    trials = [trial(number, "RUNNING" if number in under_way else "COMPLETED") for number in range(4)]
    assert asking(trials, lag).ready(4) is ready


def test_what_is_pruned_is_decided_by_the_same_trials_in_the_studys_direction() -> None:
    """Values are to be small. Against trial 0 alone (0.5) a 0.6 is worse, against 0 to 3 (median 0.7) it is better."""
    trials = [trial(0, value=0.5), *(trial(number, value=0.8) for number in (1, 2)), trial(3, value=0.6)]
    curve = (Point(0, 0.5, 0.65),)
    for lag, pruned in ((4, True), (3, False), (1, False)):
        decider = asking(trials, lag).decider(4)
        assert decider is not None
        others = [one.curve for one in trials[: 4 - lag + 1]]
        assert (
            (decider(curve) is not None) is pruned is (decide(SWEEP.pruner, curve, others, [0], "minimize") is not None)
        )


def test_a_suggestion_is_of_those_trials_and_avoids_all_of_them() -> None:
    """Two trials that nothing is learned from may have any value; their points are not drawn again."""
    known = [trial(number, value=0.5 - 0.01 * number) for number in range(12)]
    one, other = ([*known, trial(12, value=value), trial(13, value=value)] for value in (0.0, 1.0))
    assert asking(one, 3).choose(14) == asking(other, 3).choose(14)
    assert asking(one, 1).choose(14) != asking(other, 1).choose(14)
