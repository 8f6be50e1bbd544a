"""Differences of evaluations against their standard error: documents 001 and 004 among them."""

from __future__ import annotations

import math

import pytest

from core.health.case import Case, Settings
from core.health.finding import Row
from core.health.rules.gains import answers_needed, best_of, difference_se, evaluations, noise


@pytest.mark.parametrize(
    ("p1", "p2", "n", "se"),
    [
        (0.5, 0.5, 2, 0.5),  # sqrt((1/4 + 1/4) / 2)
        (0.0, 1.0, 7, 0.0),
        (0.5, 0.5038, 800, 0.025),  # +0.38 points on 800 samples, near one half: 2.5 points
        (0.573, 0.516, 200, 0.0497),  # document 004, one shot: -5.7 points of 200, 5.0 points
        (0.502, 0.480, 200, 0.05),  # two shots: -2.2
        (0.496, 0.460, 200, 0.0499),  # four shots: -3.6
        (0.578, 0.573, 200, 0.0494),  # v1 against v3: -0.5
    ],
)
def test_the_standard_error_of_a_difference(p1: float, p2: float, n: int, se: float) -> None:
    assert difference_se(p1, p2, n) == pytest.approx(se, abs=6e-5)
    assert difference_se(p2, p1, n) == difference_se(p1, p2, n)


def test_nothing_that_the_documents_celebrate_is_two_standard_errors() -> None:
    for p1, p2, n in ((0.5, 0.5038, 800), (0.5, 0.5033, 800), (0.573, 0.516, 200), (0.496, 0.460, 200)):
        assert abs(p2 - p1) < 2 * difference_se(p1, p2, n)


def test_no_answers_have_no_standard_error() -> None:
    with pytest.raises(ValueError, match="n=0"):
        difference_se(0.5, 0.6, 0)


def test_how_many_answers_would_decide() -> None:
    # 2.8^2 x (0.25 + 0.25) / 0.0038^2 = 7.84 x 0.5 / 1.444e-5 = 271,468 a side.
    assert answers_needed(0.5, 0.5038) == pytest.approx(271_460, rel=1e-3)
    assert answers_needed(0.5, 0.6) == pytest.approx(7.84 * 0.49 / 0.01)
    assert answers_needed(0.5, 0.5) == math.inf


def test_the_best_of_many_is_above_them() -> None:
    assert best_of(1) == 0.0
    assert best_of(2) == pytest.approx(1 / math.sqrt(math.pi), abs=0.03)  # exact for two: 0.564
    assert best_of(10) == pytest.approx(1.539, abs=0.01)  # order statistics of ten normals, any table


def evals(*pairs: tuple[float, float], every: int = 10) -> list[Row]:
    return [{"step": i * every, "eval/reward": reward, "eval/reward_se": se} for i, (reward, se) in enumerate(pairs)]


def test_a_small_change_is_noise() -> None:
    (finding,) = noise(Case(rows=evals((0.50, 0.03), (0.55, 0.04))))
    # 0.05 with sqrt(0.03^2 + 0.04^2) = 0.05: one standard error, p = 0.317; (2.8 / 1)^2 = 7.84 times as many.
    assert (finding.id, finding.severity) == ("noise", "info")
    assert finding.evidence["se"] == pytest.approx(0.05)
    assert finding.evidence["change"] == pytest.approx(0.05)
    assert "a change of +0.05" in finding.summary
    assert finding.evidence["p"] == pytest.approx(0.3173, abs=1e-4)
    assert finding.evidence["times_more_completions"] == pytest.approx(7.84)
    assert finding.suggest == ()  # how many there were is not known
    assert "about 8 times as many completions" in finding.advice


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        (evals((0.5, 0.03), (0.61, 0.04)), False),  # 2.2 standard errors
        (evals((0.61, 0.03), (0.5, 0.04)), False),
        (evals((0.59, 0.03), (0.5, 0.04)), True),  # 1.8
        (evals((0.5, 0.03)), False),
        (evals((0.5, 0.0), (0.5, 0.0)), False),  # no spread at all: nothing to measure it with
        ([{"step": 0, "eval/reward": 0.5}, {"step": 9, "eval/reward": 0.51}], False),  # precision unknown
        ([], False),
    ],
)
def test_what_is_noise(rows: list[Row], found: bool) -> None:
    assert bool(noise(Case(rows=rows))) == found


def test_yes_or_no_answers_have_the_error_of_their_count() -> None:
    case = Case(
        rows=[{"step": 0, "eval/reward": 0.5}, {"step": 9, "eval/reward": 0.5038}],
        settings=Settings(eval_completions=800),
    )
    assert [one.se for one in evaluations(case)] == pytest.approx([0.017678, 0.017677], abs=1e-6)  # sqrt(0.25 / 800)
    (finding,) = noise(case)
    assert finding.evidence["se"] == pytest.approx(0.025, abs=1e-4)
    # 2.8^2 x 0.025^2 / 0.0038^2 = 339 times 800, which is 271,000: told with two digits
    assert "about 270,000 completions" in finding.advice
    assert finding.evidence["times_more_completions"] == pytest.approx(339, abs=1)
    assert finding.suggest[0] == f"task.eval_prompts={math.ceil(800 * finding.evidence['times_more_completions'])}"  # type: ignore[operator]


def test_no_difference_needs_no_more_answers() -> None:
    (finding,) = noise(Case(rows=evals((0.5, 0.03), (0.5, 0.04))))
    assert finding.suggest == ()
    assert finding.advice == "there is no difference to confirm"


def test_a_best_checkpoint_was_chosen() -> None:
    rows = evals((0.50, 0.03), (0.52, 0.03), (0.61, 0.03), (0.51, 0.03))
    (finding,) = noise(Case(rows=rows))
    # +0.11 at step 20 is 2.6 standard errors; the largest of four is 1.03 se = 0.03 above by choice alone.
    assert finding.evidence["best_step"] == 20
    assert finding.evidence["best_gain_by_chance"] == pytest.approx(0.03 * best_of(4))
    assert "the choice alone gives about 0.03" in finding.summary
    (plain,) = noise(Case(rows=evals((0.50, 0.03), (0.52, 0.03), (0.51, 0.03))))
    assert "choice" not in plain.summary
