"""Every completion cut off from the first step on, and tokens the loss counted against tokens drawn."""

from __future__ import annotations

import pytest

from core.health.case import Case, Settings
from core.health.finding import Row
from core.health.rules.end_token import completion_mask, missing_eos


def case_of(start: float | None, *cut: float, drawn: float | None = 320.0) -> Case:
    """A run of steps with these shares of truncated completions, `drawn` completions in all."""
    first: Row = {"step": 0} if start is None else {"step": 0, "eval/truncated": start}
    rows: list[Row] = [
        {"step": i, "completions/valid": 0.0, "completions/truncated": share, "completions": drawn}
        for i, share in enumerate(cut, start=1)
    ]
    return Case(rows=[first, *rows], settings=Settings(max_completion_length=48))


@pytest.mark.parametrize(
    ("start", "cut", "found"),
    [
        (1.0, [1.0] * 5, True),
        (None, [1.0] * 5, True),  # a log without an evaluation before its first step
        (1.0, [1.0] * 2, False),  # two steps say little
        (0.0, [1.0] * 5, False),  # it ended its completions before it was trained
        (1.0, [0.9, *[1.0] * 9], False),  # ... and so on the first step: a policy that collapsed later
        (1.0, [*[1.0] * 5, *[0.5] * 5], False),  # training taught it to end
        (0.1, [0.1] * 5, False),
    ],
)
def test_from_the_first_step_on(start: float | None, cut: list[float], found: bool) -> None:
    assert bool(missing_eos(case_of(start, *cut))) == found


def test_where_not_one_of_many_ended() -> None:
    """A limit far too small gives the same counts: never more than moderate, and a larger limit decides."""
    (finding,) = missing_eos(case_of(1.0, *[1.0] * 5))
    assert (finding.id, finding.severity, finding.confidence) == ("missing-eos", "error", "moderate")
    assert finding.suggest == ("max_completion_length=192",)
    assert {"320", "48"} <= set(finding.summary.replace(":", " ").split())  # completions cut off, at so many tokens
    assert "too small" in finding.summary  # the other cause is named as well
    assert {"policy-collapse", "learning-rate"} == {one.id for one in finding.rules_out}
    assert finding.decider is not None


@pytest.mark.parametrize("case", [case_of(1.0, *[1.0] * 4, 0.99), case_of(1.0, *[1.0] * 5, drawn=99.0)])
def test_where_one_ended_or_few_were_drawn_the_share_is_said(case: Case) -> None:
    (finding,) = missing_eos(case)
    assert finding.confidence == "moderate"
    assert "% of the completions were cut off" in finding.summary


def test_texts_of_a_fixed_length_may_be_meant() -> None:
    case = case_of(1.0, *[1.0] * 5)
    (finding,) = missing_eos(Case(rows=[{**row, "completions/valid": 1.0} for row in case.rows]))
    assert (finding.severity, finding.confidence) == ("warning", "moderate")
    assert "fixed length" in finding.summary


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
