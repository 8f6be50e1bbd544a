"""A study in Optuna's words, and back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from grpoctl.runs.status import TrialStatus
from grpoctl.sweeps.optuna_conversion import (
    choices,
    distribution,
    ended_trial,
    from_optuna,
    names,
    optuna_state,
    steps,
    to_optuna,
)
from grpoctl.sweeps.spec import Axis
from grpoctl.sweeps.state import Point, TrialRecord


def axis(value: Any) -> Axis:
    return Axis.model_validate(value)


@pytest.mark.parametrize(
    ("status", "score", "state"),
    [
        ("RUNNING", None, None),
        ("INTERRUPTED", None, None),
        ("COMPLETED", 0.5, "COMPLETE"),
        ("COLLAPSED", 0.1, "COMPLETE"),  # its worst value teaches the sampler, a failure would not
        ("INVALID_ROLLOUT", 0.0, "COMPLETE"),
        ("PRUNED", None, "PRUNED"),
        ("FAILED", None, "FAIL"),
        ("COMPLETED", None, "FAIL"),  # without a value it cannot be told as completed
        ("COMPLETED", float("nan"), "FAIL"),
    ],
)
def test_states(status: str, score: float | None, state: str | None) -> None:
    trial = TrialRecord(number=0, params={}, seeds=(0,), status=TrialStatus(status), score=score)
    assert optuna_state(trial) == state
    if state is None:
        with pytest.raises(ValueError, match="trial 0 is"):
            ended_trial(trial)
    else:
        assert ended_trial(trial).state == state


def test_every_status_has_a_state_or_runs() -> None:
    for status in TrialStatus:
        trial = TrialRecord(number=0, params={}, seeds=(0,), status=status, score=0.5)
        assert (optuna_state(trial) is not None) is status.ended


@pytest.mark.parametrize(
    ("keys", "found"),
    [
        (
            ["stages.grpo.num_generations", "stages.grpo.advantage.scale_rewards", "faults"],
            ["num_generations", "advantage.scale_rewards", "faults"],
        ),
        (["stages.sft.max_steps", "stages.grpo.max_steps"], ["stages.sft.max_steps", "stages.grpo.max_steps"]),
        (["stages.grpo.max_steps", "max_steps"], ["stages.grpo.max_steps", "max_steps"]),  # would read the same
        (["faults"], ["faults"]),
        ([], []),
    ],
)
def test_names(keys: list[str], found: list[str]) -> None:
    assert names(keys) == dict(zip(keys, found, strict=True))


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([2, 4, 8], [2, 4, 8]),
        (["none", "group"], ["none", "group"]),
        ([None, 0.1], [None, 0.1]),
        ([[], ["a"]], ["[]", '["a"]']),
        ([1, True], ["1", "true"]),  # one and the same for Optuna
        ([{"b": 1, "a": None}, None], ['{"a":null,"b":1}', "null"]),
    ],
)
def test_choices_are_plain_where_that_is_clear(values: list[Any], found: list[Any]) -> None:
    got = choices(values)
    assert [(type(one), one) for one in got] == [(type(one), one) for one in found]


@pytest.mark.parametrize("values", [[2, 4], [None, 0.5], [[], ["a"]], [1, True], [{"a": 1}, {"a": 2}], ["1", "2"]])
def test_values_come_back_as_they_were(values: list[Any]) -> None:
    one = axis(values)
    kind: Any = distribution(one)
    for value in values:
        stored = kind.to_external_repr(kind.to_internal_repr(to_optuna(one, value)))
        assert json.dumps(from_optuna(one, stored)) == json.dumps(value)


def test_a_value_that_is_not_on_the_axis_is_refused() -> None:
    with pytest.raises(ValueError, match="5 is not among"):
        to_optuna(axis([2, 4]), 5)


@pytest.mark.parametrize(
    ("given", "drawn", "found"),
    [
        ({"low": 1, "high": 9}, 3, 3),
        ({"low": 0.1, "high": 0.7, "step": 0.2}, 0.30000000000000004, 0.3),  # on the steps, exactly
        ({"low": 0.1, "high": 0.7, "step": 0.2}, 0.7, 0.7),
        ({"low": 0.5, "high": 200000.5, "step": 1.0}, 123456.5, 123456.5),  # seven digits
        ({"low": 1e-4, "high": 2e-3, "log": True}, 0.00034871234567, 0.000348712),
        ({"low": 1e-4, "high": 1.23456789e-3, "log": True}, 1.234567889e-3, 1.23456789e-3),  # 0.00123457 lies outside
        ({"low": 1.0, "high": 1.0001}, 1.000012345, 1.000012345),  # six digits would leave eleven points
    ],
)
def test_numbers(given: dict[str, Any], drawn: float, found: float) -> None:
    got = from_optuna(axis(given), drawn)
    assert (type(got), got) == (type(found), found)


def test_the_top_of_a_stepped_range_is_there() -> None:
    kind: Any = distribution(axis({"low": 4, "high": 16, "step": 4}))
    assert (kind.low, kind.high, kind.step) == (4, 16, 4)
    kind = distribution(axis({"low": 0.1, "high": 0.7, "step": 0.2}))
    assert kind.high == 0.7


def test_curves_line_up_at_thousandths_of_a_run() -> None:
    """Seeds 7 and 3, in this order. At share 0 nothing is spent: as 1000 it would stand for the first run's end."""
    found = [(7, 0.0, 0.3), (7, 0.25, 0.1), (7, 1.0, float("nan")), (3, 0.0, 0.9), (3, 0.0001, 0.8), (3, 0.25, 1)]
    assert steps(tuple(Point(*one) for one in found), (7, 3)) == {250: 0.1, 1001: 0.8, 1250: 1.0}
