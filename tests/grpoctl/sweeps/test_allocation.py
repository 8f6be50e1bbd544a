"""Who gets the next run: screening on one seed, then races on more, by tables that can be checked by hand."""

from __future__ import annotations

import numpy as np

from grpoctl.sweeps.allocation import FEWEST, REPEATS, Job, Limits, Problem, Search, Seen


def problem(count: int = 48, **more: float) -> Problem:
    return Problem(
        candidates=count, seeds=tuple(range(30)), shares=(0.125, 0.375, 1.0), tolerance=more.get("tolerance", 0.01)
    )


def shown(job: Job, value: float, error: float = 0.005) -> Seen:
    return Seen(candidate=job.candidate, seed=job.seed, share=job.share, value=value, error=error)


def search_through(worth: list[float], *, runs: float, noise: float = 0.0) -> tuple[Search, list[Seen], list[Job]]:
    """A search among candidates of that worth until it has spent so many runs' budgets."""
    dice, search = np.random.default_rng(0), Search(problem(len(worth)))
    seen, jobs, spent = list[Seen](), list[Job](), 0.0
    while True:
        job, wait = search.job(seen, [], Limits(runs=runs - spent))
        assert not wait
        if job is None:
            return search, seen, jobs
        reached = [one.share for one in jobs if (one.candidate, one.seed) == (job.candidate, job.seed)]
        spent += job.share - max(reached, default=0.0)
        jobs.append(job)
        seen.append(shown(job, worth[job.candidate] * job.share + float(dice.normal(0, noise))))


def test_all_are_screened_then_the_best_go_on() -> None:
    """48 candidates: 6 runs' budgets for an eighth of each; 12 go on by a quarter, 7 by five eighths."""
    worth = [index / 100 for index in range(48)]
    _, _, jobs = search_through(worth, runs=6 + 12 * 0.25 + 7 * 0.625)
    assert [job.candidate for job in jobs[:48]] == list(range(48))
    assert {job.share for job in jobs[:48]} == {0.125}
    assert sorted(job.candidate for job in jobs[48:60]) == list(range(36, 48))
    assert sorted(job.candidate for job in jobs[60:]) == list(range(41, 48))
    assert {job.seed for job in jobs} == {0}


def test_few_candidates_are_hardly_screened() -> None:
    _, _, jobs = search_through([0.1, 0.2, 0.3], runs=3)
    assert sorted(job.candidate for job in jobs if job.share == 1.0) == [0, 1, 2]


def test_those_left_have_the_same_seeds_and_whoever_is_far_behind_is_left_out() -> None:
    worth = [0.1] * 20 + [0.30, 0.31, 0.60, 0.61]
    search, seen, jobs = search_through(worth, runs=30, noise=0.003)
    later = [job for job in jobs if job.seed >= 4]
    assert later
    assert {job.candidate for job in later} == {22, 23}
    by_seed = {seed: {job.candidate for job in later if job.seed == seed} for seed in {job.seed for job in later}}
    assert set(map(frozenset, list(by_seed.values())[:-1])) == {frozenset({22, 23})}
    assert search.standing(seen).choice in (22, 23)


def test_a_round_waits_for_all_of_its_jobs() -> None:
    search, seen, given = Search(problem(4)), list[Seen](), list[Job]()
    for _ in range(4):
        job, wait = search.job(seen, given)
        assert job is not None
        assert not wait
        given.append(job)
    assert len({job.candidate for job in given}) == 4
    assert search.job(seen, given) == (None, True)
    seen.append(shown(given.pop(), 0.5))
    assert search.job(seen, given) == (None, True)


def test_no_job_costs_more_than_is_left() -> None:
    search = Search(problem(4))
    assert search.job([], [], Limits(runs=0.1)) == (None, False)
    job, _ = search.job([], [], Limits(runs=0.2, excluded=frozenset({0})))
    assert job == Job(candidate=1, seed=0, share=0.125)


def test_a_choice_is_decided_on_with_repeats_alone() -> None:
    search = Search(problem(3))
    for seeds in range(1, REPEATS + 1):
        seen = [shown(Job(candidate=c, seed=s, share=1.0), (0.1, 0.2, 0.9)[c]) for s in range(seeds) for c in range(3)]
        standing = search.standing(seen)
        assert standing.choice == 2
        assert standing.right > 0.9
        assert search.is_decided(standing) == (seeds == REPEATS)


def test_a_round_under_way_decides_nothing() -> None:
    """One candidate has a fifth seed and the others not yet: with the round before nothing was decided."""
    search, dice = Search(problem(3)), np.random.default_rng(0)
    seen = [
        shown(Job(candidate=c, seed=s, share=share), 0.1 * c * share + float(dice.normal(0, 0.003)))
        for s in range(REPEATS - 1)
        for c in range(3)
        for share in (0.125, 0.375, 1.0)
    ]
    before = search.standing(seen)
    assert before.seeds == REPEATS - 1
    job, _ = search.job(seen, [])
    assert job is not None
    assert job.seed == REPEATS - 1
    seen.append(shown(job, 0.1 * job.candidate))
    assert search.standing(seen) == before
    assert not search.is_decided(search.standing(seen))


def test_whoever_was_screened_out_by_a_noisy_look_is_looked_at_again() -> None:
    """The best candidate is unlucky early on with the first seed alone: it comes back, and is chosen."""
    dice, search = np.random.default_rng(3), Search(problem(30))
    worth = [0.40 + 0.002 * index for index in range(29)] + [0.50]
    seen, jobs, spent = list[Seen](), list[Job](), 0.0
    while spent < 60:
        job, _ = search.job(seen, [])
        assert job is not None
        reached = [one.share for one in jobs if (one.candidate, one.seed) == (job.candidate, job.seed)]
        spent += job.share - max(reached, default=0.0)
        unlucky = job.candidate == 29 and job.seed == 0 and job.share < 1
        value = 0.21 if unlucky else worth[job.candidate] * (0.5 + 0.5 * job.share)
        jobs.append(job)
        seen += [shown(job, value + float(dice.normal(0, 0.02)), 0.02)]
    first = next(place for place, job in enumerate(jobs) if job.share == 1.0)
    assert 29 not in {job.candidate for job in jobs[first : first + 7]}
    assert search.standing(seen).choice == 29


def test_who_was_screened_out_is_in_the_probability() -> None:
    """Two races that are alike; in one of them twenty others were set aside after a look that says little."""
    dice = np.random.default_rng(0)
    noise = {(c, s, k): float(dice.normal(0, 0.02)) for c in range(24) for s in range(6) for k in (0.125, 0.375, 1.0)}
    right = []
    for count in (4, 24):
        search, seen = Search(problem(count)), list[Seen]()
        while search.standing(seen).seeds < REPEATS:
            job, _ = search.job(seen, [])
            assert job is not None
            worth = (0.56 if job.candidate == 0 else 0.5) + noise[job.candidate, job.seed, job.share]
            seen.append(shown(job, worth, 0.02))
        right.append(search.standing(seen).right)
    assert right[0] > right[1] + 0.02


def test_the_same_was_seen_the_same_is_decided() -> None:
    worth = [index / 100 for index in range(24)]
    search, seen, _ = search_through(worth, runs=25, noise=0.01)
    assert search.standing(seen) == Search(problem(24)).standing(seen)
    assert search.job(seen, []) == Search(problem(24)).job(seen, [])
    assert FEWEST[1] <= FEWEST[0]
