"""The ranking of a study: every number here can be worked out on paper."""

from __future__ import annotations

import math
import random

import pytest

from core.health.rules.gains import Ruler
from core.health.statistics import t_quantile
from grpoctl.analysis.sweeps.ranking import Noise, critical_value, learned, pooled, ranked
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
    # sd 0.1 and 6 degrees of freedom; three pairs: two-sided t(6) at 0.95^(1/3) = 0.983048 is 3.2733;
    # 3.2733 * 0.1 * sqrt(2/3) = 0.2673 behind is still too close to tell.
    near, far = 0.8 - 0.266, 0.8 - 0.269
    trials = [
        trial(0, [0.7, 0.8, 0.9]),
        trial(1, [near - 0.1, near, near + 0.1]),
        trial(2, [far - 0.1, far, far + 0.1]),
    ]
    ranking = ranked(trials)
    assert ranking.critical == pytest.approx(3.2733, abs=1e-3)
    assert ranking.indistinguishable == (0, 1)
    assert ranked(trials, direction="minimize").indistinguishable == (2, 1)  # 0 is 0.269 behind 2


def test_more_candidates_need_a_larger_difference() -> None:
    noise = Noise(sd=1.0, df=48)
    found = [critical_value(candidates, noise) for candidates in (2, 24, 2000)]
    assert found[0] == pytest.approx(t_quantile(0.975, 48))  # one pair needs no correction
    assert found[1] == pytest.approx(t_quantile((1 + 0.95 ** (1 / 276)) / 2, 48))  # 24 x 23 / 2 pairs
    assert found == sorted(found)
    assert critical_value(1, noise) is None


def test_an_interval_has_the_noise_of_an_evaluation_too() -> None:
    """Seeds: 0.01 / 3, 4 degrees of freedom. An evaluation's 0.03^2 = 0.0009 stays: all seeds have the same prompts."""
    ruler = Ruler(prompts=65, reward_range=(0.0, 1.0))
    trials = [trial(n, [low, low + 0.1, low + 0.2], errors=[0.03] * 3) for n, low in enumerate([0.4, 0.7])]
    ranking = ranked(trials, ruler=ruler)
    variance = 0.01 / 3 + 0.0009
    half = t_quantile(0.975, variance**2 / ((0.01 / 3) ** 2 / 4 + 0.0009**2 / 64)) * math.sqrt(variance)
    assert ranking.intervals[0] == pytest.approx((0.5 - half, 0.5 + half))
    assert ranking.intervals[1] == pytest.approx((0.8 - half, 0.8 + half))
    near_the_top = [trial(n, [low, low + 0.1, low + 0.2], errors=[0.03] * 3) for n, low in enumerate([0.4, 0.8])]
    assert (ranked(near_the_top, ruler=ruler).intervals[1] or ())[1] == 1.0  # no reward is above 1


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
    assert (ranking.best, ranking.tested, ranking.indistinguishable) == (1, False, (1, 0))  # any may be the best
    assert ranking.document() == {"ranking": [1, 0], "indistinguishable": None}
    assert ranking.intervals == {0: None, 1: None}
    assert ranked([]).document() == {"ranking": [], "indistinguishable": []}


def test_seeds_that_agree_exactly_tell_nothing_apart() -> None:
    trials = [trial(0, [0.3] * 3), trial(1, [0.5] * 3), trial(2, [0.2] * 3)]
    ranking = ranked(trials)
    assert (ranking.order, ranking.tested, ranking.seeds_alike) == ((1, 0, 2), False, True)
    assert ranking.indistinguishable == (1, 0, 2)
    assert ranking.intervals == {0: None, 1: None, 2: None}
    one_differs = ranked([*trials, trial(3, [0.4, 0.4, 0.43])])  # sd: squares 0.0006 over 8, root 0.00866
    assert (one_differs.tested, one_differs.indistinguishable) == (True, (1,))
    asked = ranked([{**one, "errors": [0.02] * 3} for one in trials], ruler=Ruler(prompts=65))
    assert asked.tested  # what other prompts would do is known


def test_seeds_that_agree_exactly_show_no_gain() -> None:
    trials = [trial(0, [0.3] * 3, starts=[0.1] * 3), trial(1, [0.5] * 3, starts=[0.1] * 3)]
    found = learned(trials, ranked(trials), direction="maximize", ruler=Ruler())
    assert found is not None
    assert (found.tested, found.alone) == (False, None)


@pytest.mark.parametrize("seeds", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_of_equal_candidates_any_is_called_worse_in_at_most_5_of_100_sweeps(seeds: int) -> None:
    """1,000 sweeps each of 2 to 24 candidates of 2 and of 3 seeds. The second count is that of one pair at a time."""
    draw = random.Random(5)
    accused = by_pair = 0
    for _ in range(rounds := 1000):
        trials = [trial(n, [draw.gauss(0.5, 0.02) for _ in range(seeds)]) for n in range(draw.randint(2, 24))]
        ranking = ranked(trials)
        accused += len(ranking.indistinguishable) < len(ranking.order)
        assert ranking.noise is not None
        least = t_quantile(0.95, ranking.noise.df) * ranking.noise.apart(seeds, seeds)
        by_pair += max(ranking.scores.values()) - min(ranking.scores.values()) > least
    assert accused / rounds <= 0.05
    assert accused  # a set of everything would accuse nobody
    assert by_pair / rounds > 0.5


def test_what_gained_nothing_is_rarely_called_learned() -> None:
    """Eight candidates that end where GRPO begins: that any is called better happens in at most 5 of 100 sweeps."""
    draw = random.Random(8)
    proven = 0
    for _ in range(rounds := 1000):
        trials = [
            trial(n, [draw.gauss(0.6, 0.02) for _ in range(3)], starts=[0.6] * 3, errors=[0.0] * 3) for n in range(8)
        ]
        ranking = ranked(trials)
        found = learned(trials, ranking, direction="maximize", ruler=Ruler())
        assert found is not None
        proven += len(found.unproven) < 8
    assert 0 < proven / rounds <= 0.06


def test_a_candidate_that_hardly_moves_says_nothing_of_the_prompts_of_one_that_does() -> None:
    """A copy of the one that stood still, added to the study, makes nobody else's gain significant.

    Seeds differ by sd 0.001414 in the first, and not at all in the others. #1's own error over 65 prompts is 0.004, the
    others' 0.0001. Of two: t at 0.95^(1/2) = 0.9747 is 1.99 for about 63 df: 0.0041 x 1.99 = 0.0082 is more than its
    gain of 0.006. Of three t is 2.16, and were the error common to all, sqrt(0.004^2 / 3) = 0.0023 would leave 0.0052.
    """

    def candidate(number: int, gain: float, error: float) -> dict[str, object]:
        ends = [0.5 + gain - 0.001, 0.5 + gain + 0.001] if number == 0 else [0.5 + gain] * 2
        return trial(number, ends, starts=[0.5, 0.5], gain_errors=[error, error])

    two = [candidate(0, 0.0, 0.0001), candidate(1, 0.006, 0.004)]
    for trials in (two, [*two, candidate(2, 0.0, 0.0001)]):
        found = learned(trials, ranked(trials), direction="maximize", ruler=Ruler(prompts=65))
        assert found is not None
        assert found.unproven == tuple(range(len(trials)))
        assert found.detectable is not None
        assert found.detectable > 0.006
