"""Gains stage by stage, and differences of evaluations against their standard error: documents 001 and 004."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from core.health.case import Case, Settings
from core.health.examine import examine
from core.health.finding import Row
from core.health.rules.gains import (
    Gain,
    Ruler,
    answers_needed,
    best_of,
    difference_se,
    evaluations,
    gain_since,
    mean_gain,
    no_gain,
    noise,
    stage_gains,
)
from core.health.statistics import t_quantile


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


def test_more_patches_of_the_same_pictures_are_no_advice() -> None:
    rows = table(0.5, 0.5, 0.502)
    rows[-1] = {**rows[-1], "eval/gain_se/grpo": 0.002}
    of_pictures = case(rows, grpo="grpo")
    settings = replace(of_pictures.settings, eval_prompts=4, eval_clusters=True)
    (finding,) = no_gain(replace(of_pictures, settings=settings))
    assert "95 % interval over 4 clusters of prompts, paired" in finding.summary
    assert finding.suggest == ()
    assert "takes about 31 clusters of prompts" in finding.advice  # (2.8 * 0.002 / 0.002)^2 * 4


def test_a_gain_of_the_last_digits_asks_for_no_more_prompts() -> None:
    rows = table(0.525, 0.525, 0.525 + 2.6e-7)
    rows[-1] = {**rows[-1], "eval/gain_se/grpo": 4e-7}
    (finding,) = no_gain(case(rows, grpo="grpo"))
    assert finding.suggest == ()
    assert finding.advice.startswith("there is no difference to confirm")


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


SE = 0.02
RULER = Ruler(prompts=65, reward_range=(0.0, 1.0))
STAGES = {"supervised": "sft", "grpo": "grpo"}


def table(*evaluations: float | None, per_stage: int = 2, se: float = SE) -> list[Row]:
    """The start, then two steps of each stage: an evaluation a step, None for a step without one."""
    rows: list[Row] = []
    for step, value in enumerate(evaluations):
        place: Row = {"step": step} if step == 0 else {"step": step, "stage": (step - 1) // per_stage}
        rows.append({**place, **({} if value is None else {"eval/reward": value, "eval/reward_se": se})})
    return rows


def case(rows: list[Row], **kinds: str) -> Case:
    return Case(
        rows=rows, stages=kinds or STAGES, settings=Settings(eval_prompts=65, eval_completions=130),
        reward_range=(0.0, 1.0),
    )  # fmt: skip


def test_a_gain_is_its_stages_own_and_the_gains_add_up() -> None:
    """0.04 -> 0.60 by imitation, then -0.01 by GRPO: the run went up by 0.55, and GRPO has no part in it."""
    rows = table(0.04, 0.3, 0.6, 0.62, 0.59)
    gains = stage_gains(rows, list(STAGES), RULER)
    assert [(one.start, one.end, one.start_step, one.end_step) for one in gains.values()] == [
        (0.04, 0.6, 0, 2), (0.6, 0.59, 2, 4),
    ]  # fmt: skip
    assert [one.gain for one in gains.values()] == [pytest.approx(0.56), pytest.approx(-0.01)]
    whole = gain_since(rows, list(STAGES), "supervised", RULER)
    assert sum(one.gain or 0.0 for one in gains.values()) == pytest.approx(whole.gain)
    assert gain_since(rows, list(STAGES), "grpo", RULER).gain == gains["grpo"].gain


def test_the_interval_has_the_errors_of_both_evaluations() -> None:
    """Two errors of 0.02 with 64 degrees of freedom each: sqrt(2) 0.02 = 0.0283, of 128 degrees; t = 1.9787."""
    gain = stage_gains(table(0.5, 0.55, 0.6), ["grpo"], RULER)["grpo"]
    assert gain.interval == pytest.approx((0.1 - 1.9787 * 0.028284, 0.1 + 1.9787 * 0.028284), abs=1e-5)
    assert gain.document() == {"start": 0.5, "end": 0.6, "gain": gain.gain, "interval": list(gain.interval or ())}


def test_an_interval_is_paired_by_prompt_where_the_run_says_how() -> None:
    """An error of 0.01 since the stage began, with 64 degrees of freedom, t = 1.9977: the two of 0.02 have no say.

    What the row says of another stage's beginning is of no use to this one.
    """
    rows = table(0.5, 0.55, 0.6)
    rows[-1] = {**rows[-1], "eval/gain_se/grpo": 0.01, "eval/gain_se/other": 0.5}
    gain = stage_gains(rows, ["grpo"], RULER)["grpo"]
    assert gain.interval == pytest.approx((0.1 - 0.019977, 0.1 + 0.019977), abs=1e-6)
    assert gain.paired
    rows[-1] = {**rows[-1], "eval/gain_se/grpo": 0.0}  # every prompt changed by as much: the other errors are taken
    assert stage_gains(rows, ["grpo"], RULER)["grpo"].paired is False


def test_where_no_prompt_changed_no_interval_is_made_up() -> None:
    """The errors of the two evaluations are of how prompts differ, and these answered as before, each of them."""
    rows = table(0.5, 0.5, 0.5)
    rows[-1] = {**rows[-1], "eval/gain_se/grpo": 0.0}
    gain = stage_gains(rows, ["grpo"], RULER)["grpo"]
    assert (gain.gain, gain.interval, gain.paired) == (0.0, None, True)
    (finding,) = no_gain(case(rows, grpo="grpo"))
    assert "stage grpo ends as it began" in finding.summary
    assert "(no prompt's reward changed)" in finding.summary
    assert finding.confidence == "strong"


def test_an_interval_stays_within_what_is_possible() -> None:
    """From 0 to 1 nothing is more than 1; a task whose rewards nobody knows has no such limit."""
    rows = table(0.0, 0.5, 1.0, se=0.1)
    assert (stage_gains(rows, ["grpo"], RULER)["grpo"].interval or ())[1] == 1.0
    assert (stage_gains(rows, ["grpo"], Ruler(prompts=65))["grpo"].interval or ())[1] > 1.2


@pytest.mark.parametrize(
    ("rows", "start", "end"),
    [
        (table(0.5), None, None),  # no step of the stage was made
        (table(0.5, None), 0.5, None),
        (table(None, 0.5), None, 0.5),  # an unsound evaluation before the first step
        (table(0.5, 0.6, None), 0.5, 0.6),  # ended by a guard, without an evaluation at the end
    ],
)
def test_what_was_not_evaluated_has_no_gain(rows: list[Row], start: float | None, end: float | None) -> None:
    gain = stage_gains(rows, ["grpo"], RULER)["grpo"]
    assert (gain.start, gain.end) == (start, end)
    assert (gain.gain is None) is (start is None or end is None)


def test_evaluations_whose_noise_is_unknown_have_no_interval() -> None:
    rows: list[Row] = [{"step": 0, "eval/reward": 0.5}, {"step": 1, "stage": 0, "eval/reward": 0.9}]
    assert stage_gains(rows, ["grpo"], RULER)["grpo"].interval is None
    assert no_gain(case(rows, grpo="grpo")) == []  # it changed, and nothing tells whether that is noise
    assert stage_gains(table(0.0, 0.0, 0.0, se=0.0), ["grpo"], RULER)["grpo"].interval is None


def test_the_mean_over_seeds_has_the_seeds_spread_and_the_evaluations_noise() -> None:
    """Gains 0.1 and 0.2: spread 0.0707, half of its square is 0.0025, with 1 degree of freedom.

    The gains' own errors add 0.0008 with 64 degrees, which more seeds on the same prompts do not make less: 0.0033 in
    all. Satterthwaite's df = 0.0033^2 / (0.0025^2 / 1 + 0.0008^2 / 64).
    """
    gains = [Gain(start=0.4, end=0.4 + up, gain=up, se=math.sqrt(2) * SE) for up in (0.1, 0.2)]
    found = mean_gain([*gains, Gain(start=0.4, end=None)], RULER)
    df = 0.0033**2 / (0.0025**2 + 0.0008**2 / 64)
    half = t_quantile(0.975, df) * math.sqrt(0.0033)
    assert (found.start, found.end, found.gain) == (pytest.approx(0.4), pytest.approx(0.55), pytest.approx(0.15))
    assert found.interval == pytest.approx((0.15 - half, min(1.0, 0.15 + half)))


@pytest.mark.parametrize(
    ("evaluations", "stages"),
    [
        ((0.04, 0.3, 0.6, 0.62, 0.59), ["grpo"]),  # -0.01 with an error of 0.028
        ((0.04, 0.3, 0.6, 0.62, 0.6), ["grpo"]),  # exactly nothing
        ((0.04, 0.3, 0.6, 0.62, 0.7), []),  # +0.1
        ((0.6, 0.6, 0.6, 0.62, 0.7), []),  # the supervised stage is judged by its own loss (supervised-flat)
        ((0.04, 0.3, 0.6, 0.5, 0.4), ["grpo"]),  # a loss is no gain either
        ((0.04, 0.3, 0.6), []),  # GRPO was not reached
    ],
)
def test_a_stage_of_grpo_that_adds_nothing_is_told_so(evaluations: tuple[float, ...], stages: list[str]) -> None:
    found = no_gain(case(table(*evaluations)))
    assert [one.evidence["stage"] for one in found] == stages
    assert all(one.id == "no-gain" and one.severity == "warning" for one in found)


def test_two_stages_are_told_apart() -> None:
    found = no_gain(case(table(0.5, 0.5, 0.5, 0.5, 0.9), blended="grpo", full="grpo"))
    assert [one.evidence["stage"] for one in found] == ["blended"]


def test_the_summary_has_the_stage_and_the_numbers() -> None:
    (found,) = no_gain(case(table(0.04, 0.3, 0.596, 0.6, 0.59)))
    assert all(fact in found.summary for fact in ("grpo", "0.596", "0.590", "-0.006", "95 %"))
    assert found.suggest[0].startswith("task.eval_prompts=")


def test_where_stages_are_known_the_whole_runs_noise_is_not_said_twice() -> None:
    rows = table(0.5, 0.5, 0.5)
    assert [one.id for one in examine(case(rows, grpo="grpo"))] == ["no-gain"]
    assert [one.id for one in examine(Case(rows=rows))] == ["noise"]  # a log that tells nothing of stages


def test_a_gain_beyond_noise_is_not_called_noise_by_the_errors_of_its_evaluations() -> None:
    """0.04 is known to 0.01 prompt by prompt, and to 0.028 if the two evaluations had nothing in common."""
    rows = table(0.5, 0.52, 0.54)
    rows[-1] = {**rows[-1], "eval/gain_se/grpo": 0.01}
    assert examine(case(rows, grpo="grpo")) == []
    assert [one.id for one in examine(Case(rows=[{k: v for k, v in row.items() if k != "stage"} for row in rows]))]


def test_a_gain_without_known_noise_claims_no_interval() -> None:
    (found,) = no_gain(case(table(0.5, 0.5, 0.5, se=0.0), grpo="grpo"))
    assert found.confidence == "weak"
    assert "95 %" not in found.summary
