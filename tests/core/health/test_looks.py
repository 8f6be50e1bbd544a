"""Which causes the numbers of a failed run look like: a made-up run for each kind of clue."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pytest

from core.health.appearance import Course, Look
from core.health.case import Case, Settings
from core.health.looks import CLUES, USUAL, looks_like

Columns = Mapping[str, Sequence[float | None]]
WAVES = [0.3, 0.34, 0.31, 0.33, 0.3, 0.35, 0.32, 0.31, 0.34, 0.3, 0.33, 0.31]  # a reward that stands
UP = [0.1 + 0.06 * at for at in range(12)]
DOWN = UP[::-1]
BACK = [0.1, 0.2, 0.4, 0.6, 0.7, 0.7, 0.6, 0.4, 0.2, 0.1, 0.05, 0.05]


def run(columns: Columns, **settings: float) -> Case:
    rows = [
        {"step": at, **{name: values[at - 1] for name, values in columns.items() if at <= len(values)}}
        for at in range(1, 1 + max(map(len, columns.values())))
    ]
    return Case(rows=rows, settings=Settings(**settings))  # type: ignore[arg-type]


def test_a_course_has_ends_a_peak_and_scatter() -> None:
    course = Course(BACK)
    assert (course.early, course.late, course.peak) == (pytest.approx(0.15), pytest.approx(0.05), 0.7)
    assert (course.peak_at, course.most, course.least) == (pytest.approx(4 / 11), 0.7, 0.05)
    assert course.scatter == pytest.approx(0.1)  # the median move from row to row
    assert course.error == pytest.approx(0.1 / math.sqrt(2))  # of an end of two rows
    assert (Course([]).late, Course([None]).missed, Course([1.0, None]).missed) == (0.0, 1.0, 0.5)
    assert (Course([0.5, 0.5]).stands, Course([0.5]).stands) == (True, False)
    assert Course([0.0] * 20 + [1.0] * 4).peak == pytest.approx(1.0)  # smoothed over three rows
    assert Course([1.0, 2.0, 3.0]).line == pytest.approx(1.0)


def test_the_reward_of_parts_is_their_mean() -> None:
    look = Look(run({"rewards/accuracy": [0.0, 1.0], "rewards/format": [1.0, 1.0]}))
    assert look.reward.values == [0.5, 1.0]
    assert (len(look.right), len(look.form)) == (1, 1)


def test_dead_groups_are_those_of_the_log_or_of_its_end_or_rows_without_a_spread() -> None:
    assert Look(run({"groups/dead": [0.4] * 6})).dead == pytest.approx(0.4)
    assert Look(run({"groups/dead": [0.1] * 5 + [0.9]})).dead == pytest.approx(0.85 * 0.9)
    assert Look(run({"reward/std": [0.0, 0.5, 0.0, 0.5]})).dead == pytest.approx(0.5)
    assert Look(run({"advantage/max": [0.0], "advantage/min": [0.0], "groups/dead": [0.1]})).dead == 1.0
    assert Look(run({"reward/mean": UP})).dead is None


def test_a_policy_breaks_where_one_of_the_columns_says_so() -> None:
    for column, values in (
        ("entropy", [0.1, 0.5, 2.0, 6.0]),
        ("completions/valid", [0.9, 0.8, 0.3, 0.1]),
        ("reward/mean", BACK),
    ):
        assert Look(run({column: values})).hurt == 2.2
    assert Look(run({"reward/mean": [1.0] * 30, "eval/reward": [0.8 - 0.02 * at for at in range(30)]})).hurt == 2.6
    assert Look(run({"reward/mean": WAVES, "entropy": [0.6] * 12})).hurt == 0.0


def test_what_is_cut_off_is_told_or_stands_at_a_limit() -> None:
    assert Look(run({"completions/truncated": [0.2, 0.4]})).cut == pytest.approx(0.3)
    assert Look(run({"completions/length": [512.0] * 5})).cut == 0.95
    assert Look(run({"completions/length": [700.0] * 5}, max_completion_length=700)).cut == 0.95
    for lengths in ([0.0] * 5, [700.0] * 5, [512.0, 300.5, 310.0]):
        assert Look(run({"completions/length": lengths})).cut is None


def test_evaluations_are_those_with_a_number() -> None:
    look = Look(run({"eval/slices/a": [None, None], "eval/slices/b": [0.5, 0.3], "": [9.0]}))
    assert look.held_out.values == [0.5, 0.3]
    assert Look(run({"": [9.0]})).held_out.count == 0


def test_what_comes_back_to_its_start_did_not_fall_below_it() -> None:
    there_and_back = run({"reward/mean": WAVES, "completions/distinct": [0.2, 0.9, 0.19]})
    assert looks_like(there_and_back)[:2] == looks_like(run({"reward/mean": WAVES}))[:2]


def test_a_gradient_that_a_loss_scaler_skips_is_not_broken() -> None:
    norms: list[float | None] = [0.5] * 40
    assert Look(run({"grad_norm": [*norms, None, None, 0.5]})).broken == []
    assert Look(run({"grad_norm": [*norms[:30], None, None, 0.5]})).broken == ["grad_norm"]
    assert Look(run({"loss": [*norms, None]})).broken == ["loss"]


def test_every_clue_is_of_a_cause_with_usual_points() -> None:
    assert {cause for clue in CLUES for cause in clue.points} <= USUAL.keys()
    assert all(points for clue in CLUES for points in clue.points.values())


@pytest.mark.parametrize(
    ("columns", "settings", "first"),
    [
        ({"reward/mean": WAVES}, {}, {"no-gain"}),
        ({"reward/mean": WAVES, "groups/dead": [0.9] * 12}, {}, {"dead-groups"}),
        ({"reward/mean": [0.0] * 12, "groups/dead": [1.0] * 12}, {}, {"dead-groups", "dead-run"}),
        ({"reward/mean": [0.7] * 12}, {}, {"dead-groups"}),
        ({"reward/mean": [0.99] * 12}, {}, {"dead-groups", "constant-reward"}),
        ({"reward/mean": BACK}, {}, {"policy-collapse"}),
        ({"reward/mean": DOWN}, {}, {"policy-collapse"}),
        ({"eval/reward": [0.6, 0.62, 0.1]}, {}, {"policy-collapse", "no-gain"}),
        ({"reward/mean": UP, "eval/reward": [0.4, 0.41, 0.4]}, {}, {"reward-hacking", "no-gain"}),
        ({"reward/mean": UP, "reward/true": DOWN}, {}, {"reward-hacking"}),
        ({"reward/mean": WAVES, "reward/true": DOWN}, {}, {"reward-hacking"}),
        ({"rewards/accuracy": [0.0] * 12, "rewards/format": UP}, {}, {"proxy-reward"}),
        ({"rewards/accuracy": DOWN, "rewards/format": UP, "reward/mean": WAVES}, {}, {"policy-collapse"}),
        ({"reward/mean": WAVES, "completions/truncated": [0.9] * 12}, {}, {"truncation"}),
        ({"reward/mean": WAVES, "completions/length": [512.0] * 12}, {}, {"truncation"}),
        ({"reward/mean": WAVES, "entropy": [1.0, 0.8, 0.5, 0.3, 0.1, 0.05]}, {}, {"entropy-collapse"}),
        ({"reward/mean": WAVES, "kl": [0.01, 1.0, 80.0, 900.0]}, {}, {"kl-runaway"}),
        ({"reward/mean": WAVES, "kl": [-0.1, -0.2, -0.1, -0.3]}, {}, {"negative-kl"}),
        ({"reward/mean": WAVES, "loss": [0.1, None, None, None]}, {}, {"numerical"}),
        ({"reward/mean": WAVES, "grad_norm": [0.5, 2e4, 0.6, 0.5]}, {}, {"grad-explosion"}),
        ({"reward/mean": WAVES, "grad_norm": [0.0] * 12, "loss": [0.1] * 12}, {}, {"no-gradient"}),
        ({"reward/mean": WAVES, "sampler/kl": [0.01, 0.3, 0.5]}, {}, {"sampler-mismatch"}),
        ({"reward/mean": WAVES}, {"learning_rate": 1e-7}, {"learning-rate", "no-gain"}),
        ({"reward/mean": WAVES}, {"num_generations": 1}, {"group-of-one"}),
        ({"reward/mean": UP, "tools/calls": [1.0, 0.5, 0.1]}, {}, {"reward-hacking"}),
        ({"rewards/accuracy": [0.0] * 12, "rewards/format": [0.0] * 12, "reward/mean": [0.0] * 12}, {}, {"dead-run"}),
    ],
)
def test_what_stands_out_is_among_the_first_two(
    columns: Columns, settings: Mapping[str, float], first: set[str]
) -> None:
    assert first <= set(looks_like(run(columns, **settings))[:2])


@pytest.mark.parametrize(
    "case",
    [
        Case(rows=[]),
        Case(rows=[{"step": 1}]),
        Case(rows=[{"step": 1, "reward/mean": None}]),
        Case(rows=[{"step": at, "reward/mean": 1e308 * (-1) ** at, "kl": 1e200} for at in range(1, 9)]),
        run({"reward/mean": [math.inf, 0.1, 0.2], "rewards/a": [1e-300] * 3, "eval/reward": [0.0] * 3}),
    ],
)
def test_odd_tables_have_all_causes(case: Case) -> None:
    assert set(looks_like(case)) == USUAL.keys()
