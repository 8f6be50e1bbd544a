"""Every part of a spec: nothing is converted silently, and a late key at its default is not written."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import BeforeValidator, ValidationError

from core.config.part import LATE, Finite, Fraction, Name, Part, PositiveInt, refusal, whole


class Inner(Part):
    late: Annotated[int, LATE] = 3
    early: int = 1


class Outer(Part):
    name: Name = "a"
    share: Fraction = 0.5
    count: PositiveInt = 1
    number: Finite = 0.0
    ddof: Annotated[Literal[0, 1], BeforeValidator(whole)] = 0
    inner: Annotated[Inner, LATE] = Inner()


def test_a_late_key_is_written_only_away_from_its_default() -> None:
    assert Inner().model_dump() == {"early": 1}
    assert Inner(late=4).model_dump() == {"late": 4, "early": 1}
    assert Inner(late=3, early=2).model_dump() == {"early": 2}  # said and equal: the same identity
    assert "inner" not in Outer().model_dump()
    assert Outer(inner=Inner(late=4)).model_dump()["inner"] == {"late": 4, "early": 1}


@pytest.mark.parametrize(
    "wrong",
    [
        {"count": "3"}, {"count": 0}, {"count": True}, {"share": 1.01}, {"share": -0.01}, {"number": float("nan")},
        {"number": float("inf")}, {"name": "A"}, {"name": "-a"}, {"name": "a" * 65}, {"other": 1}, {"ddof": True},
        {"ddof": 1.0}, {"ddof": 2},
    ],
)  # fmt: skip
def test_what_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Outer.model_validate(wrong)


@pytest.mark.parametrize("right", [{"share": 1.0}, {"share": 0.0}, {"name": "a" * 64}, {"name": "0-_"}, {"ddof": 1}])
def test_what_is_allowed(right: dict[str, Any]) -> None:
    assert right.items() <= Outer.model_validate(right).model_dump().items()


def test_a_refusal_names_the_key_to_mend() -> None:
    error = refusal("a.b", "got {1}; allowed: 2")
    assert (error.type, error.context) == ("cross_field", {"key": "a.b", "problem": "got {1}; allowed: 2"})
    assert error.message() == "got {1}; allowed: 2"
