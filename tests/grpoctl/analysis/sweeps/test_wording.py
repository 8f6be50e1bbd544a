"""Keys, numbers and times as people read them."""

from __future__ import annotations

import pytest

from grpoctl.analysis.sweeps.wording import params_text, score_text, short_keys, trials_text, value_text
from grpoctl.wording import clock_text


def test_the_shortest_ending_nobody_shares() -> None:
    keys = ["stages.sft.learning_rate", "stages.grpo.learning_rate", "stages.grpo.beta", "faults"]
    assert short_keys(keys) == {
        keys[0]: "sft.learning_rate", keys[1]: "grpo.learning_rate", keys[2]: "beta", "faults": "faults",
    }  # fmt: skip
    assert short_keys(["beta", "stages.beta"]) == {"beta": "beta", "stages.beta": "stages.beta"}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"), (None, "null"), (8, "8"), (0.00032629, "0.0003263"), ("group", "group"), ([], "[]"),
        (["a", 1.0], "[a, 1]"), ({"start": 0.5}, "{start: 0.5}"),
    ],
)  # fmt: skip
def test_a_value(value: object, text: str) -> None:
    assert value_text(value) == text


def test_scores_times_and_lists() -> None:
    assert score_text("eval/reward", 0.61234, [0.59234, 0.63234]) == "0.612 ± 0.020"
    assert score_text("eval/reward", 0.99, [0.97, 1.0]) == "0.990 [0.970, 1.000]"  # ± would say too much above
    assert score_text("eval/reward", 0.61234, None) == "0.612"
    assert score_text("eval/reward", None, None) == "-"
    assert [clock_text(seconds) for seconds in (None, 59.6, 3723)] == ["-:--", "1:00", "1:02:03"]
    assert [trials_text(list(range(n))) for n in (0, 1, 2, 3)] == ["", "#0", "#0 and #1", "#0, #1 and #2"]
    assert trials_text(list(range(20)), most=2) == "#0, #1 and 18 more"
    assert params_text({"a.b": 2, "c": "x"}, {"a.b": "b"}) == "b=2 c=x"
