"""What `show` says of a spec's methods."""

from __future__ import annotations

import pytest

from core.config import METHODS
from grpoctl.analysis.methods import described
from grpoctl.config import load


def test_the_point_of_a_name_and_where_the_spec_departs_from_it() -> None:
    found = described(load("p31", overrides=["method=dapo", "reduction=sequence_mean", "beta=0.1"]).spec)["grpo"]
    assert (found["method"], found["source"]) == ("dapo", METHODS["dapo"].source)
    assert found["axes"]["reduction"] == "token_mean"
    assert found["axes"]["dynamic_sampling.max_attempts"] == 10
    assert found["overridden"] == {"reduction": ["token_mean", "sequence_mean"], "beta": [0.0, 0.1]}


@pytest.mark.parametrize("method", METHODS)
def test_a_name_alone_departs_from_nothing(method: str) -> None:
    assert described(load("p31", overrides=[f"method={method}"]).spec)["grpo"]["overridden"] == {}


def test_stages_of_other_kinds_have_no_method() -> None:
    spec = load("p31", overrides=["stages.grpo.kind=rce", "max_steps=1", "num_generations=2", "prompts_per_step=1",
                                  "learning_rate=1"]).spec  # fmt: skip
    assert described(spec) == {}
