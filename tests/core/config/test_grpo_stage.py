"""Settings of a GRPO stage: the divisor of a deviation, what must be positive, and where a plateau has no place."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from core.config import AdvantageSpec, RunSpec
from tests.core.config.valid_run import RUN, STAGE, refused


@pytest.mark.parametrize("value", [True, False, 1.0, 0.0, "1", 2, None])
def test_ddof_is_the_integer_0_or_1(value: object) -> None:
    with pytest.raises(ValidationError):
        AdvantageSpec.model_validate({"ddof": value})
    assert AdvantageSpec.model_validate({"ddof": 0}).ddof == 0


@pytest.mark.parametrize(
    ("value", "positive", "any_"),
    [
        (0, False, True),
        ({"start": 1, "end": 0, "steps": 3}, False, True),
        ({"start": 0, "end": 1, "steps": 1}, False, True),
        ({"start": 1, "end": 2}, False, False),
        ({"start": 1, "end": 0, "shape": "exponential"}, False, False),  # an exponential never arrives at 0
        ({"start": 1, "end": 0.1, "steps": 2, "shape": "exponential", "warmup": 4}, True, True),
    ],
)
def test_what_must_be_positive_is_so_at_both_ends(value: object, positive: bool, any_: bool) -> None:
    for key, accepted in (("temperature", positive), ("beta", any_)):
        stages = {"stages": {"grpo": {**STAGE, key: value}}}
        if accepted:
            assert RunSpec.model_validate({**RUN, **stages})
        else:
            assert refused(stages)["loc"][3] == key


@pytest.mark.parametrize(
    ("changes", "key", "problem"),
    [
        (
            {"beta": {"start": 0, "end": 0, "plateau": {"patience": 3}}}, "plateau",
            "got a plateau of a number that is 0 throughout; allowed: null",
        ),
        (
            {
                "beta": {"start": 0.1, "end": 0.1, "plateau": {"patience": 3}},
                "adaptive_beta": {"rule": "threshold"},
            },
            "adaptive_beta", "needs a beta above 0 that is a plain number: it starts there and moves itself",
        ),
        (
            {"entropy_coef": {"start": 0.1, "end": 0.1, "plateau": {"patience": 3}}, "adaptive_entropy": {}},
            "adaptive_entropy", "needs an entropy_coef that is a plain number: it starts there and moves itself",
        ),
    ],
)  # fmt: skip
def test_where_a_plateau_has_no_place(changes: dict[str, Any], key: str, problem: str) -> None:
    error = refused({"stages": {"grpo": {**STAGE, **changes}}})
    assert (error["ctx"]["key"], error["msg"]) == (key, problem)
