"""The ranking of a study: every number here can be worked out on paper."""

from __future__ import annotations

import math
import random

import pytest

from core.health.statistics import t_quantile
from grpoctl.analysis.sweeps.ranking import Noise, critical_value, pooled, ranked
from tests.studies import trial


def test_noise_is_pooled_over_candidates_not_their_spread() -> None:
    # squares about the means 2 and 20: 1 + 0 + 1 and 4 + 4, degrees of freedom 2 + 1
    noise = pooled([[1.0, 2.0, 3.0], [18.0, 22.0]])
    assert noise == Noise(sd=math.sqrt(10 / 3), df=3)


@pytest.mark.parametrize("groups", [[], [[1.0]], [[1.0], [2.0]]])
def test_one_seed_per_candidate_says_nothing_about_noise(groups: list[list[float]]) -> None:
    assert pooled(groups) is None


def test_the_best_is_first_and_ties_go_by_number() -> None:
    trials = [trial(0, [0.4]), trial(1, [0.6]), trial(2, [0.6]), trial(3, [0.5])]
    assert ranked(trials).order == (1, 2, 3, 0)
    assert ranked(trials, direction="minimize").order == (0, 3, 1, 2)


def test_an_interval_has_the_pooled_deviation() -> None:
    # sd: squares 0.02 + 0.02 over 4 degrees of freedom = 0.01, root 0.1; t(4) at 97.5 % = 2.776445; / sqrt(3)
    ranking = ranked([trial(0, [0.4, 0.5, 0.6]), trial(1, [0.7, 0.8, 0.9])])
    assert ranking.noise is not None
    assert (ranking.noise.sd, ranking.noise.df) == (pytest.approx(0.1), 4)
    half = 2.776445 * 0.1 / math.sqrt(3)
    assert ranking.intervals[1] == pytest.approx((0.8 - half, 0.8 + half), abs=1e-6)
    assert ranking.intervals[0] == pytest.approx((0.5 - half, 0.5 + half), abs=1e-6)


def test_who_cannot_be_told_apart_from_the_best() -> None:
    # sd 0.1 and 6 degrees of freedom; two comparisons: one-sided t(6) at 0.95^(1/2) = 0.974679 is 2.4375;
    # 2.4375 * 0.1 * sqrt(2/3) = 0.1990 behind is still too close to tell.
    near, far = 0.8 - 0.198, 0.8 - 0.201
    trials = [
        trial(0, [0.7, 0.8, 0.9]),
        trial(1, [near - 0.1, near, near + 0.1]),
        trial(2, [far - 0.1, far, far + 0.1]),
    ]
    ranking = ranked(trials)
    assert ranking.critical == pytest.approx(2.4375, abs=1e-4)
    assert ranking.indistinguishable == (0, 1)
    assert ranked(trials, direction="minimize").indistinguishable == (2, 1)  # 0 is 0.201 behind 2


def test_more_candidates_need_a_larger_difference() -> None:
    noise = Noise(sd=1.0, df=48)
    found = [critical_value(candidates, noise) for candidates in (2, 24, 2000)]
    assert found[0] == pytest.approx(t_quantile(0.95, 48))  # one comparison needs no correction
    assert found[1] == pytest.approx(t_quantile(0.95 ** (1 / 23), 48))
    assert found == sorted(found)
    assert critical_value(1, noise) is None


def test_a_candidate_that_collapsed_is_no_noise_but_is_ranked() -> None:
    sound = [trial(0, [0.50, 0.52, 0.54]), trial(1, [0.60, 0.62, 0.64])]
    collapsed = trial(2, [0.9, 0.0, 0.0], "COLLAPSED")
    ranking = ranked([*sound, collapsed])
    assert ranking.order == (1, 0, 2)
    assert ranking.noise is not None
    assert ranking.noise.sd == pytest.approx(0.02)  # its spread of 0.5 is left out
    assert ranking.flagged == (2,)
    low, high = ranking.intervals[2] or (0, 0)
    assert high - low == pytest.approx(ranking.intervals[0][1] - ranking.intervals[0][0])  # type: ignore[index]
    assert 2 not in ranking.indistinguishable


@pytest.mark.parametrize("status", ["PRUNED", "FAILED", "RUNNING", "INTERRUPTED"])
def test_what_did_not_use_its_budget_is_not_ranked(status: str) -> None:
    assert ranked([trial(0, [0.5]), trial(1, [0.9], status)]).order == (0,)


def test_a_seed_without_a_value_is_left_out_and_the_candidate_flagged() -> None:
    ranking = ranked([trial(0, [0.4, 0.6]), trial(1, [0.7, None]), trial(2, [None, None])], worst=-1.0)
    assert ranking.scores == {0: pytest.approx(0.5), 1: 0.7, 2: -1.0}
    assert ranking.flagged == (1, 2)
    assert ranking.noise is not None
    assert ranking.noise.df == 1


def test_nothing_to_rank() -> None:
    for trials in ([], [trial(0, [None], "FAILED")]):
        ranking = ranked(trials)
        assert (ranking.best, ranking.order, ranking.indistinguishable, ranking.noise) == (None, (), (), None)


def test_without_noise_nothing_can_be_told_apart() -> None:
    ranking = ranked([trial(0, [0.1]), trial(1, [0.9])])
    assert (ranking.best, ranking.indistinguishable) == (1, (1, 0))
    assert ranking.intervals == {0: None, 1: None}


def test_seeds_that_agree_exactly_tell_everything_apart_but_what_is_equal() -> None:
    trials = [trial(0, [0.3] * 3), trial(1, [0.1 + 0.2] * 3), trial(2, [0.2] * 3)]
    ranking = ranked(trials)
    assert set(ranking.indistinguishable) == {0, 1}  # 0.1 + 0.2 is 0.3 but for rounding
    assert ranking.intervals[2] == (pytest.approx(0.2), pytest.approx(0.2))


def test_the_truly_best_is_in_the_set_in_95_of_100_studies() -> None:
    # 12 candidates, three equal best ones: the hardest case for the promise is that all are equal, and holds it too.
    draw = random.Random(5)
    missed, rounds = 0, 400
    for _ in range(rounds):
        trials = [trial(index, [draw.gauss(0.5, 0.02) for _ in range(3)]) for index in range(12)]
        missed += 0 not in ranked(trials).indistinguishable
    assert missed / rounds <= 0.05
    assert missed  # a set of everything would miss nothing
