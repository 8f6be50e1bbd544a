"""The points of a sweep, against lists a person can write down."""

from __future__ import annotations

from typing import Any

import pytest

from core.errors import SpecError
from grpoctl.sweeps.axis import Axis
from grpoctl.sweeps.space import active, count, finite, identity, name_of, order, points, size, values
from grpoctl.sweeps.spec import SweepSpec

A, B, C = "stages.grpo.beta", "stages.grpo.kl_estimator", "stages.grpo.epsilon"


def of(axes: dict[str, Any] | None = None, **keys: Any) -> SweepSpec:
    given = {"name": "mine", "title": "Mine", "experiment": "p31", "axes": axes or {}, **keys}
    return SweepSpec.model_validate(given)


@pytest.mark.parametrize(
    ("axis", "expected"),
    [
        ([3, 1, None, [1], {"a": 1}], [3, 1, None, [1], {"a": 1}]),
        ({"low": 2, "high": 5}, [2, 3, 4, 5]),
        ({"low": 2, "high": 8, "step": 3}, [2, 5, 8]),  # 2, 2 + 3, 2 + 6: the top is one of them
        ({"low": 0.1, "high": 0.3, "step": 0.1}, [0.1, 0.2, 0.3]),  # not 0.30000000000000004
        ({"low": -1, "high": 1, "step": 0.5}, [-1.0, -0.5, 0.0, 0.5, 1.0]),
        ({"low": 1, "high": 3, "log": True}, [1, 2, 3]),
    ],
)
def test_the_values_of_an_axis(axis: object, expected: list[Any]) -> None:
    found = Axis.model_validate(axis)
    assert values(found) == expected
    assert [type(value) for value in values(found)] == [type(value) for value in expected]
    assert count(found) == len(expected)


def test_a_range_of_real_numbers_has_no_end() -> None:
    spec = of({A: {"low": 0.1, "high": 0.3}, B: ["k2", "k3"]})
    assert (finite(spec), size(spec)) == (False, None)
    with pytest.raises(SpecError, match=f"{A} is a range of real numbers"):
        points(spec)


def test_the_product_has_the_last_axis_fastest() -> None:
    spec = of({A: [0, 0.1], B: ["k2", "k3"]})
    assert finite(spec)
    assert size(spec) == 4
    assert points(spec) == [{A: 0, B: "k2"}, {A: 0, B: "k3"}, {A: 0.1, B: "k2"}, {A: 0.1, B: "k3"}]


def test_a_conditional_axis_is_there_where_its_condition_holds() -> None:
    spec = of({B: {"values": ["k2", "k3"], "when": {A: [0.1, 0.2]}}, A: [0, 0.1, 0.2], C: [0.2, 0.3]})
    # beta 0: 2 points of epsilon; beta 0.1 and 0.2: 2 estimators x 2 epsilons each
    assert size(spec) == 2 + 4 + 4
    assert points(spec)[:3] == [{A: 0, C: 0.2}, {A: 0, C: 0.3}, {B: "k2", A: 0.1, C: 0.2}]
    assert len({identity(point) for point in points(spec)}) == 10
    assert order(spec) == [A, B, C]
    assert [list(point) for point in points(spec)][-1] == [B, A, C]  # keys as the axes are written


def test_conditions_chain() -> None:
    spec = of({A: [0, 0.1], B: {"values": ["k2", "k3"], "when": {A: 0.1}}, C: {"values": [1, 2], "when": {B: "k3"}}})
    assert points(spec) == [{A: 0}, {A: 0.1, B: "k2"}, {A: 0.1, B: "k3", C: 1}, {A: 0.1, B: "k3", C: 2}]
    assert active(spec, {A: 0.1, B: "k3"}, C)
    assert not active(spec, {A: 0.1, B: "k2"}, C)
    assert not active(spec, {A: 0}, C)  # the axis it waits for is not there itself
    assert active(spec, {A: 0.10}, B)


def test_too_many_points_are_not_listed() -> None:
    spec = of({A: {"low": 0, "high": 1_000_000}})
    assert size(spec) == 1_000_001
    with pytest.raises(SpecError, match="more than 10000 points"):
        points(spec)
    two = of({A: {"low": 0, "high": 1_000_000}, B: {"values": ["k2"], "when": {C: 1}}, C: [1, 2]})
    assert size(two) == 10_001  # counted so far


def test_identity_is_of_values_not_of_their_writing() -> None:
    assert identity({"a": 1, "b": [1.0]}) == identity({"b": [1], "a": 1.0})
    assert identity({"a": True}) != identity({"a": 1})
    assert identity({"a": None}) != identity({})


def test_candidates_and_rungs_are_their_own_points() -> None:
    candidates = of(candidates={"plain": {}, "kl": {A: 0.1}})
    assert (size(candidates), points(candidates)) == (2, [{}, {A: 0.1}])
    assert [name_of(candidates, point) for point in points(candidates)] == ["plain", "kl"]
    ladder = of(ladder=[{"name": "A"}, {"name": "A+B", "experiment": "p32", "settings": {A: 0}}])
    assert points(ladder) == [{"experiment": "p31"}, {"experiment": "p32", A: 0}]
    assert name_of(ladder, {"experiment": "p32", A: 0.0}) == "A+B"
    assert name_of(of({A: [0, 1]}), {A: 0}) is None
