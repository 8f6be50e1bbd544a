"""What is believed of candidates, and which run decides most: by hand where two runs are enough to see it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from grpoctl.sweeps.allocation import (
    VAGUE,
    Beliefs,
    Job,
    Limits,
    Places,
    Problem,
    Search,
    Seen,
    Shape,
    at_the_end,
    places_of,
    standardised,
    thinned,
)

APART = np.asarray([[0.0], [1.0]])  # two candidates at the ends of one axis
UNLIKE = Shape(smooth=0.0001, own=1.0, noise=0.5, luck=0.0001, grows=0.0001, lengths=(1.0,), tilts=(0.0,))


def problem(count: int = 8, *, tolerance: float = 0.01) -> Problem:
    """Candidates in a row."""
    features = np.linspace(0, 1, count)[:, None]
    return Problem(features_CA=features, seeds=tuple(range(20)), shares=(0.5, 1.0), tolerance=tolerance)


def whole(candidate: int, seed: int, value: float) -> list[Seen]:
    return [Seen(candidate=candidate, seed=seed, share=share, value=value) for share in (0.5, 1.0)]


def test_the_difference_of_two_runs_is_believed_as_far_as_noise_lets_it() -> None:
    """Worth of variance 1, noise of .25: of a difference of 1 between single runs, 1 / 1.25 is believed."""
    seen = [Seen(candidate=0, seed=0, share=1.0, value=0.5), Seen(candidate=1, seed=0, share=1.0, value=-0.5)]
    beliefs = Beliefs(APART, places_of(seen), np.asarray([0.5, -0.5]), UNLIKE)
    mean, covariance = beliefs.worth(at_the_end(np.arange(2)))
    assert mean[0] - mean[1] == pytest.approx(1 / 1.25, rel=1e-3)
    variance = covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1]
    assert variance == pytest.approx(2 - 2 / 1.25, rel=1e-3)  # prior 2, less what was learned of it
    assert beliefs.marginals(at_the_end(np.arange(2)))[1] == pytest.approx(np.sqrt(np.diag(covariance)))


def test_what_a_seed_does_to_all_candidates_cancels() -> None:
    """The same two values: with the seed in common their difference is the candidates' own."""
    shape = Shape(smooth=0.0001, own=1.0, noise=0.1, luck=2.0, grows=0.0001, lengths=(1.0,), tilts=(0.0,))
    differences = []
    for seed in (0, 1):
        seen = [Seen(candidate=0, seed=0, share=1.0, value=0.5), Seen(candidate=1, seed=seed, share=1.0, value=-0.5)]
        mean, _ = Beliefs(APART, places_of(seen), np.asarray([0.5, -0.5]), shape).worth(at_the_end(np.arange(2)))
        differences.append(mean[0] - mean[1])
    assert differences[0] == pytest.approx(1 / 1.01, rel=1e-3)  # noise .01 against worth 1
    assert differences[1] == pytest.approx(1 / (1 + 0.01 + 4), rel=1e-2)  # and each its own luck of 4


def test_alike_candidates_are_believed_to_be_alike_and_others_are_not() -> None:
    shape = Shape(smooth=1.0, own=0.1, noise=0.1, luck=0.01, lengths=(0.3,), tilts=(0.0,))
    places = Places([0, 7], [0, 0], [1.0, 1.0])
    mean, covariance = Beliefs(problem().features_CA, places, np.asarray([1.0, -1.0]), shape).worth(
        at_the_end(np.arange(8))
    )
    assert mean[0] > mean[1] > mean[2]
    assert covariance[1, 1] < covariance[3, 3]


def test_half_a_run_says_less_than_a_whole_one_and_more_than_none() -> None:
    shape = Shape(smooth=0.01, own=1.0, noise=0.2, worth_keeps=0.8, luck=0.01, lengths=(1.0,), tilts=(0.0,))
    values = np.asarray([1.0, -1.0])
    sds = []
    for share in (0.5, 1.0):
        beliefs = Beliefs(APART, Places([0, 1], [0, 0], [share, share]), values, shape)
        _, covariance = beliefs.worth(at_the_end(np.arange(2)))
        sds.append(math.sqrt(covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1]))
    assert sds[1] < sds[0] < math.sqrt(2)


def test_jobs_under_way_make_surer_and_change_no_mean() -> None:
    values = np.asarray([0.5, -0.5])
    beliefs = Beliefs(APART, Places([0, 1], [0, 0], [1.0, 1.0]), values, UNLIKE)
    expecting = beliefs.expecting(Places([0], [1], [1.0]))
    before, after = (one.worth(at_the_end(np.arange(2))) for one in (beliefs, expecting))
    assert after[0] == pytest.approx(before[0], abs=1e-6)
    assert after[1][0, 0] < before[1][0, 0]


def test_a_level_is_not_believed_to_be_worth() -> None:
    """All values of a share moved alike say nothing about any candidate."""
    for moved in (0.0, VAGUE / 3):
        values = np.asarray([0.5 + moved, -0.5 + moved])
        mean, _ = Beliefs(APART, Places([0, 1], [0, 0], [1.0, 1.0]), values, UNLIKE).worth(at_the_end(np.arange(2)))
        assert mean[0] - mean[1] == pytest.approx(0.8, rel=1e-2)


def test_the_best_is_chosen_and_more_is_spent_on_what_is_near_it() -> None:
    truth = [0.1, 0.1, 0.2, 0.2, 0.3, 0.35, 0.6, 0.62]
    dice, search, seen, jobs = np.random.default_rng(0), Search(problem()), list[Seen](), list[Job]()
    for number in range(40):
        standing, job = search.decide(seen, [], number=number)
        assert job is not None
        jobs.append(job)
        value = truth[job.candidate] + float(dice.normal(0, 0.02))
        seen.append(Seen(candidate=job.candidate, seed=job.seed, share=job.share, value=value, error=0.01))
    assert standing.choice in (6, 7)
    late = [job.candidate for job in jobs[20:]]
    assert sum(candidate >= 6 for candidate in late) > len(late) / 2
    again = Search(problem()).decide(seen, [], number=7)
    assert again[1] == search.decide(seen, [], number=7)[1]  # of what was seen alone, not of what was asked before


def test_no_run_is_given_out_twice() -> None:
    seen = [*whole(0, 0, 0.5), Seen(candidate=1, seed=0, share=0.5, value=0.5)]
    pending: list[Job] = []
    for number in range(12):
        _, job = Search(problem(2)).decide(seen, pending, number=number)
        assert job is not None
        assert (job.candidate, job.seed) not in {(one.candidate, one.seed) for one in pending}
        assert (job.candidate, job.seed) != (0, 0)  # that run is over
        pending.append(job)


def test_limits_are_kept() -> None:
    seen = [one for candidate in (2, 3) for one in whole(candidate, 0, 0.5 + 0.1 * candidate)]
    for number in range(10):
        limits = Limits(runs=0.5, candidates=2, excluded=frozenset({3}))
        standing, job = Search(problem()).decide(seen, [], number=number, limits=limits)
        assert standing.choice == 2
        assert job is not None
        assert (job.candidate, job.share) == (2, 0.5)
    assert Search(problem()).decide(seen, [], number=0, limits=Limits(runs=0.25))[1] is None


def test_a_choice_is_decided_on_with_repeats_alone() -> None:
    """However clear it looks: from one run of each nobody knows what a seed does."""
    clear = {index: 0.9 if index == 3 else 0.1 for index in range(8)}
    once = [one for index, value in clear.items() for one in whole(index, 0, value)]
    search = Search(problem(tolerance=0.05))
    standing, _ = search.decide(once, [], number=0)
    assert standing.choice == 3
    assert not search.is_decided(standing, once)
    more = [*once, *(one for seed in (1, 2, 3) for index in (2, 3, 4) for one in whole(index, seed, clear[index]))]
    standing, _ = search.decide(more, [], number=1)
    assert standing.right > 0.9
    assert search.is_decided(standing, more)


def test_how_bad_a_hopeless_candidate_is_does_not_matter() -> None:
    values = [0.60, 0.62, 0.64, 0.0]
    seen = [Seen(candidate=index, seed=0, share=1.0, value=value) for index, value in enumerate(values)]
    scaled, centre, spread = standardised(seen, 0.001)
    # the median is .61: what lies below .61 - 2 (.64 - .61) counts as that
    assert (scaled * spread + centre).tolist() == pytest.approx([0.60, 0.62, 0.64, 0.55])


def test_of_many_observations_those_of_the_best_candidates_are_kept() -> None:
    seen = [one for index in range(10) for one in whole(index, 0, index / 10)]
    assert {one.candidate for one in thinned(seen, 6)} == {7, 8, 9}
    assert thinned(seen, 6) == [one for one in seen if one.candidate >= 7]
    assert thinned(seen, 20) is seen
