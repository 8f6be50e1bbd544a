"""The rules on curves that can be checked by hand."""

from __future__ import annotations

import math
import random
import runpy
from typing import Any

import pytest

from grpoctl.sweeps.pruning import Curve, Place, decide, standing
from grpoctl.sweeps.spec import PrunerSpec
from tests.architecture.source import ROOT


def rule(name: str = "patient-median", **options: Any) -> PrunerSpec:
    return PrunerSpec.model_validate({"name": name, **options})


def place(spent: float) -> Place:
    """Where a trial of seeds 0, 1, ... is that has spent so many runs' budgets: (1, 0.25) for 1.25."""
    index = max(0, math.ceil(spent) - 1)  # 1.0 is the end of the first run
    return index, round(spent - index, 6)


def points(*reports: tuple[float, float]) -> Curve:
    """A curve by (runs' budgets spent, value)."""
    return tuple((*place(spent), value) for spent, value in reports)


def flat(value: float, reports: int = 4, seeds: int = 1) -> Curve:
    """The same value at every report."""
    return points(*((n / reports, value) for n in range(1, seeds * reports + 1)))


ONE, THREE = (0,), (0, 1, 2)  # seeds
MEDIAN = rule(patience=2, warmup=0.5, min_trials=3)
OTHERS = [flat(0.3), flat(0.5), flat(0.9)]  # their median is 0.5


@pytest.mark.parametrize(
    ("curve", "pruned"),
    [
        ([(0.25, 0.4), (0.5, 0.4)], False),  # one report of two lies before the warm-up
        ([(0.25, 0.4), (0.5, 0.4), (0.75, 0.4)], True),
        ([(0.25, 0.4), (0.5, 0.4), (0.75, 0.5)], False),  # at the median, not below it
        ([(0.25, 0.4), (0.5, 0.6), (0.75, 0.4)], False),  # one report below it, not two in a row
        ([(0.25, 0.6), (0.5, 0.4), (0.75, 0.4)], True),
        ([(0.25, 0.4), (0.5, 0.4), (0.75, 0.4), (1.0, 0.4)], False),  # at the end nothing is left to save
        ([(0.75, 0.4)], False),
        ([], False),
    ],
)
def test_below_the_median_so_many_times_in_a_row(curve: list[tuple[float, float]], pruned: bool) -> None:
    assert (decide(MEDIAN, points(*curve), OTHERS, ONE) is not None) is pruned


def test_lower_is_better_where_the_metric_says_so() -> None:
    low, high = flat(0.4)[:3], flat(0.6)[:3]
    assert decide(MEDIAN, low, OTHERS, ONE, "maximize")
    assert not decide(MEDIAN, high, OTHERS, ONE, "maximize")
    assert not decide(MEDIAN, low, OTHERS, ONE, "minimize")
    assert decide(MEDIAN, high, OTHERS, ONE, "minimize")


def test_the_reason_has_the_numbers() -> None:
    curve = flat(0.4)[:3]
    below = "below the median of 3 trials at 2 evaluations in a row: 0.4 against 0.5 after 0.75 runs"
    assert decide(MEDIAN, curve, OTHERS, ONE) == below
    assert str(decide(MEDIAN, flat(0.6)[:3], OTHERS, ONE, "minimize")).startswith("above the median of 3 trials")


def test_so_many_others_must_have_come_as_far() -> None:
    short = flat(0.9)[:2]  # ended at 0.5
    assert decide(MEDIAN, flat(0.4)[:3], [*OTHERS[:2], short], ONE) is None
    assert decide(MEDIAN, flat(0.4)[:3], [*OTHERS, short], ONE) is not None


def test_given_up_trials_do_not_raise_the_bar() -> None:
    """Two were given up at 0.5 with 0.1: the median of 0.1 0.1 0.5 0.7 0.9 is 0.5; of those that lived it is 0.7."""
    others = [flat(0.1)[:2], flat(0.1)[:2], flat(0.5), flat(0.7), flat(0.9)]
    assert decide(MEDIAN, flat(0.6)[:3], others, ONE) is None
    assert decide(MEDIAN, flat(0.4)[:3], others, ONE) is not None


def test_equal_units_are_compared_not_equal_reports() -> None:
    """Others report twice as often and rise: after half of the budget they stand at 0.4, after all of it at 0.8."""
    others = [points(*((n / 8, 0.1 * n) for n in range(1, 9)))] * 3
    patient = rule(patience=1, warmup=0.0, min_trials=3)
    assert (
        decide(patient, points((0.25, 0.15), (0.5, 0.45)), others, ONE) is None
    )  # their second report says 0.2, their fourth 0.4
    assert decide(patient, points((0.25, 0.25), (0.5, 0.35)), others, ONE) is not None


def test_a_report_between_two_of_the_others_is_held_against_the_earlier() -> None:
    assert standing(points((0.5, 0.2), (1.0, 0.8)), (0, 0.75), ONE) == 0.2
    assert standing(points((0.5, 0.2), (1.0, 0.8)), (0, 0.25), ONE) is None


def test_later_seeds_are_compared_with_later_seeds_and_earlier_ones_count() -> None:
    curve = points((0.5, 0.1), (1.0, 0.6), (1.5, 0.2), (2.0, 0.4))
    assert standing(curve, place(1.0), THREE) == 0.6  # the end of the first run is not the start of the second
    assert standing(curve, place(1.5), THREE) == pytest.approx(0.4)  # (0.6 + 0.2) / 2
    assert standing(curve, place(1.25), THREE) is None  # nothing of the second run yet
    assert standing(curve, place(2.0), THREE) == pytest.approx(0.5)  # (0.6 + 0.4) / 2
    assert standing(curve, place(2.5), THREE) == pytest.approx(0.5)  # ended: keeps what it had
    others = [flat(0.5, seeds=3)] * 3
    good_first = points((0.5, 0.9), (1.0, 0.9), (1.25, 0.2), (1.5, 0.2))  # (0.9 + 0.2) / 2 = 0.55
    bad_first = points((0.5, 0.6), (1.0, 0.6), (1.25, 0.2), (1.5, 0.2))  # (0.6 + 0.2) / 2 = 0.4
    assert decide(MEDIAN, good_first, others, THREE) is None
    assert decide(MEDIAN, bad_first, others, THREE) is not None


def test_a_report_that_is_no_number_is_none() -> None:
    assert standing(points((0.5, 0.2), (1.0, math.nan)), (0, 1.0), ONE) == 0.2
    assert decide(MEDIAN, [*flat(0.4)[:2], (0, 0.75, math.nan)], OTHERS, ONE) is None
    assert decide(MEDIAN, flat(0.4)[:3], [*OTHERS, points((0.5, math.nan)), ()], ONE) is not None


HALVING = rule("successive-halving", reduction=2, warmup=0.25)  # rungs of one run: 0.5, 0.25


@pytest.mark.parametrize(
    ("value", "at", "pruned"),
    [
        (0.6, 2, False),  # at 0.5: second of four, and the best two go on
        (0.4, 2, True),  # third of four
        (0.4, 1, True),  # at 0.25 the same
        (0.4, 3, False),  # 0.75 is no rung
    ],
)
def test_halving_keeps_one_in_so_many_at_each_rung(value: float, at: int, pruned: bool) -> None:
    assert (decide(HALVING, flat(value)[:at], OTHERS, ONE) is not None) is pruned


def test_halving_has_no_rung_before_the_warmup_and_lets_the_first_pass() -> None:
    later = rule("successive-halving", reduction=2, warmup=0.5)
    assert decide(later, flat(0.1)[:1], OTHERS, ONE) is None
    assert decide(later, flat(0.1)[:2], OTHERS, ONE) is not None
    assert decide(HALVING, flat(0.1)[:2], [], ONE) is None


def test_halving_gives_up_what_is_worse_not_what_is_equal() -> None:
    """One of two goes on: an equal one is not better, so both do."""
    assert decide(HALVING, points((0.5, 0.5)), [flat(0.5)], ONE) is None
    assert decide(HALVING, points((0.5, 0.49)), [flat(0.5)], ONE) is not None


def test_halving_counts_those_that_it_stopped_at_the_rung() -> None:
    """0.5 is second of three there, and one of three goes on; 0.3 was stopped at the rung and still counts."""
    stopped = flat(0.3)[:2]
    why = decide(HALVING, flat(0.5)[:2], [stopped, flat(0.9)], ONE)
    assert why is not None
    assert [fact in why for fact in ("rung of 0.5 runs", "number 2 of 3", "best 1 ")] == [True] * 3
    assert decide(HALVING, flat(0.5)[:2], [stopped, stopped, flat(0.9)], ONE) is None  # second of four, two go on


def test_halving_of_three_seeds_has_its_rungs_in_all_of_them() -> None:
    """Rungs of three runs: 1.5 and 0.75. A report at 0.8 is the first past 0.75, one at 1.0 the second."""
    others = [flat(0.9, seeds=3)] * 3
    assert decide(HALVING, points((0.5, 0.1), (0.8, 0.1)), others, THREE) is not None
    assert decide(HALVING, points((0.8, 0.1), (1.0, 0.1)), others, THREE) is None
    assert decide(HALVING, points((1.0, 0.1), (1.5, 0.1)), others, THREE) is not None


def test_none_never_gives_up() -> None:
    assert decide(rule("none"), flat(0.0)[:3], OTHERS * 9, ONE) is None


def test_seeds_are_told_apart_by_their_place_whatever_their_numbers() -> None:
    """Seeds 7 and 3, in this order: the second run's first half is held against the second runs of the others."""
    seeds = (7, 3)
    others = [((7, 1.0, 0.5), (3, 0.5, 0.5), (3, 1.0, 0.5))] * 3
    patient = rule(patience=1, warmup=0.0, min_trials=3)
    assert decide(patient, ((7, 1.0, 0.9), (3, 0.5, 0.2)), others, seeds) is None  # (0.9 + 0.2) / 2 = 0.55
    assert decide(patient, ((7, 1.0, 0.6), (3, 0.5, 0.2)), others, seeds) is not None  # 0.4


def test_what_is_reported_before_anything_is_spent_decides_nothing_and_counts_for_nothing() -> None:
    """A second run's supervised stage, at share 0: neither the first run's end nor a first report of its own."""
    patient = rule(patience=1, warmup=0.0, min_trials=3)
    first = ((0, 0.5, 0.6), (0, 1.0, 0.6))
    others = [(*first, (1, 0.0, 0.05), (1, 0.5, 0.6), (1, 1.0, 0.6))] * 3
    assert decide(patient, (*first, (1, 0.0, 0.05)), others, (0, 1)) is None
    assert standing(others[0], (0, 1.0), (0, 1)) == 0.6
    assert standing(others[0], (1, 0.25), (0, 1)) is None
    assert decide(patient, (*first, (1, 0.0, 0.05), (1, 0.5, 0.1)), others, (0, 1)) is not None  # 0.35 against 0.6


def test_the_defaults_lose_the_best_arm_less_often_than_optunas_median() -> None:
    """A small piece of benchmarks/pruning.py; the whole table stands in docs/benchmarks.md."""
    bench = runpy.run_path(str(ROOT / "benchmarks" / "pruning.py"))
    ours = bench["measure"](bench["RULES"]["patient-median (the default: 3, 0.5)"], (3, 8), 0.05, (20, 24))
    optunas = bench["measure"](bench["RULES"]["Optuna MedianPruner()"], (3, 8), 0.05, (20, 24))
    assert ours["lost"] <= 0.05 < optunas["lost"]
    assert ours["saved"] > 0.2


def test_the_order_of_the_others_does_not_matter() -> None:
    rng = random.Random(0)
    for _ in range(50):
        others = [flat(rng.random()) for _ in range(7)]
        curve = points(*((n / 4, rng.random()) for n in range(1, 4)))
        shuffled = rng.sample(others, len(others))
        for one in (MEDIAN, HALVING):
            assert decide(one, curve, others, ONE) == decide(one, curve, shuffled, ONE)
