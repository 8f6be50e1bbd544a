"""Prompts of evaluation in training: by the recorded share, and by ids."""

from __future__ import annotations

from core.health.case import Case, Sample
from core.health.finding import Row
from core.health.rules.validation import leakage

HELD_OUT = frozenset({"eval-0", "eval-1"})


def shares(*values: float) -> list[Row]:
    return [{"step": 0}, *({"step": i, "groups/held_out": value} for i, value in enumerate(values, start=1))]


def samples(*groups: str) -> tuple[Sample, ...]:
    return tuple(Sample(step=1, row=row, group=group) for row, group in enumerate(groups))


def test_none_is_none() -> None:
    assert leakage(Case(rows=shares(0.0, 0.0), samples=samples("train-0"), eval_groups=HELD_OUT)) == ()
    assert leakage(Case(rows=[], samples=samples("eval-0"))) == ()  # what is held out is not known


def test_a_share_of_the_steps_prompts() -> None:
    case = Case(rows=shares(0.0, 0.5, 0.0, 0.5), samples=samples("train-0", "eval-1"), eval_groups=HELD_OUT)
    (finding,) = leakage(case)
    assert (finding.id, finding.severity, finding.confidence) == ("leakage", "error", "certain")
    assert finding.evidence == {
        "share": 0.25, "steps": 4, "steps_with_some": 2, "first_step": 2.0,
        "prompts": ["eval-1"], "prompts_in_both": 1, "prompts_trained_on": 2,
    }  # fmt: skip


def test_the_same_text_under_another_id_is_the_same_problem() -> None:
    (finding,) = leakage(Case(rows=shares(0.5), samples=samples("train-0"), eval_groups=HELD_OUT))
    assert "by their text" in finding.summary


def test_a_single_one_of_hundreds_is_a_warning() -> None:
    (finding,) = leakage(Case(rows=shares(*[0.0] * 199, 1.0)))  # 1 of 200: half of one per cent
    assert (finding.severity, finding.evidence["share"]) == ("warning", 0.005)


def test_ids_alone_where_the_share_was_not_recorded() -> None:
    (finding,) = leakage(Case(rows=[{"step": 1}], samples=samples("eval-0", "a", "b", "c"), eval_groups=HELD_OUT))
    assert (finding.severity, finding.evidence["prompts_in_both"]) == ("error", 1)
    assert finding.summary.startswith("25.0%")
