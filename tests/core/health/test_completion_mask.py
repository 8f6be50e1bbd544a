"""Tokens the loss counted against tokens drawn."""

from __future__ import annotations

import pytest

from core.health.case import Case, Settings
from core.health.finding import Row
from core.health.rules.end_token import completion_mask


def rows_of(*pairs: tuple[float | None, float | None]) -> list[Row]:
    return [
        {"step": i, "policy/tokens": counted, "policy/tokens_drawn": drawn}
        for i, (counted, drawn) in enumerate(pairs, start=1)
    ]


@pytest.mark.parametrize("pairs", [[], [(343.0, 343.0)] * 3, [(None, 343.0)], [(0.1 + 0.2, 0.3)]])
def test_equal_or_unknown_counts_say_nothing(pairs: list[tuple[float | None, float | None]]) -> None:
    assert completion_mask(Case(rows=rows_of(*pairs))) == ()


def test_one_token_less_in_each_completion() -> None:
    case = Case(
        rows=[*rows_of((327.0, 343.0), (304.0, 320.0)), {"step": 3, "update": 0}],  # 16 completions, one token each
        settings=Settings(num_generations=8, prompts_per_step=2),
    )
    (finding,) = completion_mask(case)
    assert (finding.id, finding.severity, finding.confidence) == ("completion-mask", "error", "certain")
    assert finding.evidence == {
        "step": 1, "counted": 327.0, "drawn": 343.0, "odd_steps": 2, "steps": 2, "missing_a_step": 16.0
    }  # fmt: skip
    assert "(1 a completion)" in finding.summary


def test_too_many_are_as_wrong_as_too_few() -> None:
    (finding,) = completion_mask(Case(rows=rows_of((10.0, 10.0), (12.0, 10.0))))
    assert (finding.evidence["step"], finding.evidence["odd_steps"], finding.evidence["missing_a_step"]) == (2, 1, -2)
