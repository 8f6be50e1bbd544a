"""Differences of sides: their variance by source, their intervals, and what data could have shown."""

from __future__ import annotations

import math

import numpy as np
import pytest

from core.health.statistics import t_quantile
from grpoctl.analysis.contrasts import (
    LEAST_SHARE,
    NOMINAL,
    Outcomes,
    contrast,
    contrasts,
    improvement,
    noise,
    pass_at,
    range_quantile,
)

BEYOND = (1 + NOMINAL) / 2  # the quantile of a verdict over problems


def side(*rows: list[float], seeds: list[int] | None = None) -> Outcomes:
    """A side whose seeds have these answers to the problems p0, p1, ..."""
    table_SM = np.array(rows)
    names = seeds if seeds is not None else range(len(rows))
    values = {seed: float(np.mean(row)) for seed, row in zip(names, rows, strict=True)}
    return Outcomes(values=values, problems=tuple(f"p{at}" for at in range(table_SM.shape[1])), answers_SM=table_SM)


def drawn(seeds: int, problems: int, *, seed: float, problem: float, draw: float, at: int) -> Outcomes:
    """Answers with these standard deviations of seeds, problems and single answers."""
    dice = np.random.default_rng(at)
    table_SM = (
        seed * dice.normal(size=(seeds, 1))
        + problem * dice.normal(size=(1, problems))
        + draw * dice.normal(size=(seeds, problems))
    )
    return side(*table_SM.tolist())


def test_the_variance_of_a_paired_difference_worked_by_hand() -> None:
    # Five seeds x six problems, B - A. Seed means 1, 3, 5, 2, 4: 2.5 over 5. Problem means 2, 4, 2, 4, ...: 1.2 over 6.
    gaps = [[0.0, 2.0] * 3, [2.0, 4.0] * 3, [4.0, 6.0] * 3, [1.0, 3.0] * 3, [3.0, 5.0] * 3]
    zero = side(*[[0.0] * 6] * 5)
    made = noise(zero, side(*gaps))
    assert made is not None
    assert (made.method, made.problems, made.variance) == ("paired", 6, pytest.approx(0.5 + 0.2))
    assert (made.sources.seed, made.sources.problem, made.sources.draw) == pytest.approx((0.5, 0.2, 0.0))
    assert made.df == pytest.approx(0.7**2 / (0.5**2 / 4 + 0.2**2 / 5))  # Satterthwaite's
    # The same with draws of +-1 in two rows: squares 12 over 4 x 5 degrees over 30 answers, in seeds and in problems.
    gaps[0], gaps[1] = [1.0, 1.0] * 3, [1.0, 5.0] * 3
    made = noise(zero, side(*gaps))
    assert made is not None
    assert made.variance == pytest.approx(0.5 + 0.2 - 0.02)
    assert (made.sources.seed, made.sources.problem, made.sources.draw) == pytest.approx((0.48, 0.18, 0.02))


def test_seeds_that_agree_by_chance_leave_the_noise_of_problems_and_draws() -> None:
    # Every seed has the mean 2.5, problems 2 and 3: variance .5 over 2; what is left is more: 20 over 4 over 10.
    gaps = [[1.0, 4.0], [2.0, 3.0], [0.0, 5.0], [3.0, 2.0], [4.0, 1.0]]
    made = noise(side(*[[0.0, 0.0]] * 5), side(*gaps))
    assert made is not None
    assert (made.variance, made.df) == (pytest.approx(LEAST_SHARE * 0.25), 1.0)
    assert made.sources.shares() == {"seed": 0.0, "problem": 0.0, "draw": 1.0}


def test_where_problems_add_nothing_it_is_students_t_over_seeds() -> None:
    # B - A: (1, 1), (2, 0), (3, 3), (2, 4), (5, 5): problem means 2.6, 2.6
    gaps = [[1.0, 1.0], [2.0, 0.0], [3.0, 3.0], [2.0, 4.0], [5.0, 5.0]]
    a, b = side(*[[0.0, 0.0]] * 5), side(*gaps)
    made, alone = contrast(a, b), contrast(Outcomes(values=a.values), Outcomes(values=b.values))
    assert made.df == 4.0
    assert made.interval == pytest.approx(alone.interval)


def test_few_seeds_take_the_variance_of_both_sides() -> None:
    # Seed means 1, 2, 3 and 2, 2, 5: variances 1 and 3 over three seeds, 1/3 + 1; problems are all alike.
    a, b = side([1.0, 1.0], [2.0, 2.0], [3.0, 3.0]), side([2.0, 2.0], [2.0, 2.0], [5.0, 5.0])
    made = noise(a, b)
    assert made is not None
    assert (made.method, made.variance) == ("welch", pytest.approx(4 / 3))
    # Welch: (4/3)^2 / ((1/9 + 1) / 2)
    assert made.df == pytest.approx(16 / 9 / (10 / 18))
    half = t_quantile(0.975, made.df) * math.sqrt(4 / 3)
    assert contrast(a, b).interval == pytest.approx((1 - half, 1 + half))


def test_what_makes_a_problem_hard_cancels_and_what_sides_do_to_problems_does_not() -> None:
    hard = np.linspace(-5, 5, 40)
    a = side(*(hard + 0.01 * at for at in range(5)))
    b = side(*(hard + 1 + 0.01 * at for at in range(5)))
    made = contrast(a, b)
    assert made.interval == pytest.approx((1.0, 1.0), abs=1e-9)
    odd = np.where(np.arange(40) % 2, 1.0, -1.0)  # B is better at every other problem, worse at the others
    made = contrast(a, side(*(hard + odd + 0.01 * at for at in range(5))))
    assert made.sources is not None
    assert made.sources.shares()["problem"] == pytest.approx(1.0)
    assert not made.clear
    assert made.seeds_needed is None  # they are the same problems, however many seeds


@pytest.mark.parametrize(
    ("problems", "name"),
    [(("a", "b"), "other problems"), ((), "not recorded")],
)
def test_without_the_same_problems_the_interval_is_over_seeds(problems: tuple[str, ...], name: str) -> None:
    a = side([0.4, 0.4], [0.5, 0.5], [0.6, 0.6])
    b = Outcomes(
        values={0: 0.5, 1: 0.62, 2: 0.74}, problems=problems, answers_SM=np.zeros((3, 2)) if problems else None
    )
    made = contrast(a, b)
    # Differences 0.10, 0.12, 0.14: half 4.302653 * 0.02 / sqrt(3)
    assert made.interval == pytest.approx((0.12 - 0.049683, 0.12 + 0.049683), abs=1e-6), name
    assert (made.method, made.problems) == ("paired", None)


def seeds_alone(*values: float, first: int = 0) -> Outcomes:
    """A side of which only its seeds' values are known."""
    return Outcomes(values=dict(enumerate(values, first)))


def test_welch_where_the_seeds_differ() -> None:
    # a: mean 2, variance 1, n 3; b: mean 6, variance 8, n 2
    # standard error sqrt(1/3 + 8/2) = sqrt(13/3) = 2.081666
    # df = (13/3)^2 / ((1/3)^2 / 2 + 4^2 / 1) = 18.777778 / 16.055556 = 1.169550, t(0.975) = 9.082776 there
    made = contrast(seeds_alone(1.0, 2.0, 3.0), seeds_alone(4.0, 8.0, first=7))
    half = 2.081666 * 9.082776
    assert (made.mean, made.method) == (4.0, "welch")
    assert made.interval == pytest.approx((4 - half, 4 + half), rel=1e-5)
    # Both variances 1, n 3: standard error sqrt(2/3) = 0.816497, df 4, t 2.776445
    alike = contrast(seeds_alone(1.0, 2.0, 3.0), seeds_alone(2.0, 3.0, 4.0, first=7))
    assert alike.interval == pytest.approx((1 - 2.266958, 1 + 2.266958), abs=1e-6)
    still = contrast(seeds_alone(1.0, 1.0), seeds_alone(3.0, 3.0, first=7))
    assert (still.interval, still.clear, still.seeds_alike) == (None, False, True)  # seeds that did nothing


def test_pairing_removes_what_a_seed_does_to_both_sides() -> None:
    a = seeds_alone(1.0, 2.0, 3.0)
    narrow, wide = (contrast(a, seeds_alone(1.1, 2.1, 3.1, first=first)).interval for first in (0, 7))
    assert narrow == pytest.approx((0.1, 0.1))
    assert wide is not None
    assert wide[0] < 0 < wide[1]


def test_one_seed_has_no_interval() -> None:
    made = contrast(side([0.1, 0.2]), side([0.3, 0.4], [0.3, 0.5]))
    assert (made.interval, made.method, made.clear, made.improvement.interval) == (None, "none", False, None)
    assert made.mean == pytest.approx(0.375 - 0.15)


def test_an_answer_that_is_missing_takes_its_problem_out() -> None:
    a = side([0.1, 0.2, 0.3], [0.1, 0.2, 0.3])
    b = side([0.1, math.nan, 0.3], [0.1, 0.2, 0.3])
    made = noise(a, b)
    assert made is not None
    assert made.problems == 2


def test_turning_the_sides_round_turns_the_difference_round() -> None:
    a, b = (drawn(5, 30, seed=1, problem=1, draw=1, at=at) for at in (1, 2))
    there, back = contrast(a, b), contrast(b, a)
    assert there.mean == pytest.approx(-back.mean)
    assert there.interval is not None
    assert back.interval is not None
    assert there.interval == pytest.approx((-back.interval[1], -back.interval[0]))
    assert there.improvement.value == pytest.approx(1 - back.improvement.value)


def test_a_pair_among_many_has_its_own_interval_and_a_wider_one_for_all_at_once() -> None:
    sides = [drawn(4, 20, seed=1, problem=0.5, draw=0.5, at=at) for at in range(3)]
    every, alone = contrasts(sides), contrast(sides[0], sides[1])
    assert len(every) == 3
    assert every[0, 1].interval == alone.interval
    for made in every.values():
        assert made.family is not None
        assert made.interval is not None
        assert made.family[0] < made.interval[0] < made.interval[1] < made.family[1]
    # Runs that happen to agree do not make a pair precise: its interval is as wide as that of all pairs' mean noise.
    flat = [side(*[[0.5, 0.5]] * 4), side(*[[0.5001, 0.5001]] * 4)]
    assert contrast(*flat).clear
    assert not contrasts([*sides, *flat])[3, 4].clear


def test_the_studentised_range() -> None:
    # Tables: q(.95; 3, 10) = 3.877, q(.95; 10, 20) = 5.008; over sqrt(2), degrees of freedom rounded down.
    assert range_quantile(3, 10.0) == pytest.approx(3.877 / math.sqrt(2), rel=0.01)
    assert range_quantile(10, 20.0) == pytest.approx(5.008 / math.sqrt(2), rel=0.01)
    assert range_quantile(3, 10.0) >= 3.877 / math.sqrt(2)
    assert range_quantile(2, 1e9) == pytest.approx(1.96, abs=0.001)


@pytest.mark.parametrize(
    ("a", "b", "value"),
    [
        ([1.0, 2.0], [3.0, 4.0], 1.0),
        ([1.0, 2.0], [1.0, 2.0], 0.5),
        ([1.0, 3.0], [2.0, 2.0], 0.5),
        ([2.0, 2.0], [2.0, 3.0], 0.75),  # 2-2 tie, 2-3 win, twice: (0.5 + 1) / 2
    ],
)
def test_probability_of_improvement(a: list[float], b: list[float], value: float) -> None:
    made = improvement(a, b)
    assert made.value == value
    assert made.interval is not None
    assert made.interval[0] <= value <= made.interval[1]
    assert made.interval[0] >= 0
    assert made.interval[1] <= 1


def test_newcombes_interval() -> None:
    """36 of 36 pairs of six runs each: his method 5, solved by hand for the lower bound.

    1 - t = 1.96 sqrt(t (1 - t) (1 + 5 ((1 - t) / (2 - t) + t / (1 + t))) / 36); at t = .689: both are .311.
    """
    made = improvement(list(range(6)), list(range(10, 16)))
    assert made.interval == pytest.approx((0.689, 1.0), abs=0.001)


@pytest.mark.parametrize(
    ("right", "draws", "k", "chance"),
    [(0, 4, 2, 0.0), (4, 4, 1, 1.0), (1, 4, 1, 0.25), (1, 4, 2, 0.5), (2, 4, 2, 1 - 1 / 6), (3, 4, 2, 1.0)],
)
def test_pass_at_k_is_unbiased(right: int, draws: int, k: int, chance: float) -> None:
    assert pass_at(right, draws, k) == pytest.approx(chance)
    with pytest.raises(ValueError, match="allowed"):
        pass_at(right, draws, draws + 1)


def test_more_seeds_are_needed_for_a_smaller_difference() -> None:
    # Seed variance 1 a side and nothing else: (t + t.8) sqrt(2 / n) <= gap; t is that of a verdict over problems.
    a = side([-1.0, -1.0], [0.0, 0.0], [1.0, 1.0])
    needed = []
    for gap in (0.5, 1.0, 2.0):
        made = contrast(a, side(*([row + gap] * 2 for row in (-1.0, 0.0, 1.0))))
        needed.append(made.seeds_needed)
    for n, gap in zip(needed, (0.5, 1.0, 2.0), strict=True):
        assert n is not None
        shown = [(t_quantile(BEYOND, 2 * m - 2) + t_quantile(0.8, 2 * m - 2)) * math.sqrt(2 / m) for m in (n - 1, n)]
        assert shown[0] > gap >= shown[1]
    assert needed == [71, 19, 6]
    assert contrast(a, a).seeds_needed is None  # no number of seeds shows a difference of nothing


def test_a_verdict_over_problems_asks_for_more_than_one_over_seeds_alone() -> None:
    a, b = side([0.0, 0.2], [0.1, 0.1], [0.4, 0.0]), side([0.5, 0.1], [0.3, 0.5], [0.2, 0.4])
    made = contrast(a, b)
    alone = contrast(Outcomes(values=a.values), Outcomes(values=b.values))
    assert made.family is not None
    assert made.df is not None
    assert made.error is not None
    assert made.family[1] - made.mean == pytest.approx(t_quantile(BEYOND, made.df) * made.error)
    assert made.interval is not None
    assert made.interval[1] - made.mean == pytest.approx(t_quantile(0.975, made.df) * made.error)
    assert alone.family == alone.interval


def test_a_difference_that_rests_on_one_seed_says_which() -> None:
    a = side(*[[0.0, 0.0]] * 5)
    b = side([1.0, 1.0], [1.1, 1.1], [0.9, 0.9], [1.0, 1.0], [1.05, 1.05])
    assert contrast(a, b).rests_on == ()
    narrow = side([0.0, 0.0], [0.1, 0.1], [0.2, 0.2], [0.25, 0.25], [0.3, 0.3])
    made = contrast(a, narrow)
    assert made.clear
    assert 4 in made.rests_on
