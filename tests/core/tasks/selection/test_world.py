"""The generator: its truth against counting, its stored picks, and that nothing in it depends on who asks when."""

from __future__ import annotations

import hashlib
import itertools
import math
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from core.config.task import SelectionWorldSpec
from core.tasks.selection.world import World

SMALL: dict[str, Any] = {"width": 16, "bank": 40, "candidates": 10}
DIGEST = """\
import hashlib
from core.config.task import SelectionWorldSpec
from core.tasks.selection.world import World
world = World(SelectionWorldSpec(width=16, bank=40, candidates=10), data_seed=3, count=20, shots=2)
print(hashlib.sha256(repr([world.queries, world.query_embeddings.tolist()]).encode()).hexdigest())
"""


def world(count: int = 40, *, seed: int = 0, shots: int = 2, **changes: Any) -> World:
    return World(SelectionWorldSpec(**{**SMALL, **changes}), data_seed=seed, count=count, shots=shots)


def everything(of: World, query: int, picks: int = 2) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.array(list(itertools.combinations(of.queries[query].pool, picks)))


def test_two_processes_make_the_same_world() -> None:
    made = world(20, seed=3)
    here = hashlib.sha256(repr([made.queries, made.query_embeddings.tolist()]).encode()).hexdigest()
    env = {**os.environ, "PYTHONHASHSEED": "1"}
    there = subprocess.run([sys.executable, "-c", DIGEST], capture_output=True, text=True, check=True, env=env)
    assert there.stdout.strip() == here


def test_another_seed_is_another_world_and_more_queries_are_the_same_ones() -> None:
    few, many, other = world(5), world(90), world(5, seed=1)
    assert list(many.queries)[:5] == list(few.queries)
    assert np.array_equal(many.query_embeddings[:5], few.query_embeddings)
    query_N, picks_NS = np.zeros(45, dtype=np.int64), everything(few, 0)
    assert np.array_equal(few.scores(query_N, picks_NS).accuracy_N, many.scores(query_N, picks_NS).accuracy_N)
    assert [query.pool for query in other.queries] != [query.pool for query in few.queries]


def test_the_answerer_is_asked_about_sets() -> None:
    of = world(likeness=0.0)
    picks_NS = everything(of, 7)
    one, same = (of.scores(np.full(45, 7), picks) for picks in (picks_NS, picks_NS[:, ::-1]))
    assert np.array_equal(one.accuracy_N, same.accuracy_N)
    assert np.allclose(one.expected_N, same.expected_N)
    assert set(one.accuracy_N.tolist()) <= {0.0, 0.6, 1.0}
    assert np.array_equal(one.correct_N, one.accuracy_N > 0)
    assert len({*one.accuracy_N.tolist()}) > 1
    assert 0 <= one.gt_prob_N.min() <= one.gt_prob_N.max() <= 1e-6
    assert 0 <= one.rel_N.min() <= one.rel_N.max() <= 1


@pytest.mark.parametrize("changes", [{"likeness": 0.3, "learnable": 0.2}, {"likeness": 0.0, "learnable": 0.5}])
def test_the_expectation_is_what_answers_average_to(changes: dict[str, Any]) -> None:
    """Over many (query, set) pairs, whose luck is independent: within 4 standard errors, low and high alike."""
    of = world(300, **changes)
    query_N = np.repeat(np.arange(300), 45)
    scores = of.scores(query_N, np.concatenate([everything(of, query) for query in range(300)]))
    order = np.argsort(scores.expected_N)
    for part_N in np.array_split(order, 4):
        error = scores.accuracy_N[part_N].std() / math.sqrt(len(part_N))
        assert scores.accuracy_N[part_N].mean() == pytest.approx(scores.expected_N[part_N].mean(), abs=4 * error)


def test_without_luck_the_expectation_is_the_answer() -> None:
    for of in (world(likeness=1.0), world(learnable=1.0)):
        scores = of.scores(np.full(45, 3), everything(of, 3))
        assert np.allclose(scores.expected_N, scores.accuracy_N, atol=1e-12)


def test_at_likeness_1_all_sets_of_a_query_are_answered_alike_and_below_they_are_not() -> None:
    def mixed(likeness: float) -> int:
        of = world(100, likeness=likeness)
        answers = (of.scores(np.full(45, query), everything(of, query)).correct_N for query in range(100))
        return sum(bool(correct_N.min() < correct_N.max()) for correct_N in answers)

    assert mixed(1.0) == 0
    assert mixed(0.999) < mixed(0.9) < mixed(0.0)


def stored_scores(of: World) -> Any:
    rows = [(place, one.picks) for place, query in enumerate(of.queries) for one in query.stored]
    return of.scores(np.array([place for place, _ in rows]), np.array([picks for _, picks in rows]))


@pytest.mark.parametrize("likeness", [0.0, 0.9, 0.9999])
def test_the_published_marginals(likeness: float) -> None:
    """54.99 % of the stored picks are right, 12.335 of 15 are left, a fifth of the right is partly so."""
    right, partly, left, rows = 0.0, 0.0, 0, 0
    for seed in range(4):
        of = World(SelectionWorldSpec(likeness=likeness), data_seed=seed, count=300, shots=2)
        scores = stored_scores(of)
        right += float(scores.correct_N.sum())
        partly += float((scores.accuracy_N == 0.6).sum())
        left += sum(len(query.stored) for query in of.queries)
        rows += len(scores.correct_N)
    # Picks of one query share its own part: 1,200 queries, a standard error of at most .0144.
    assert right / rows == pytest.approx(0.5499, abs=0.045)
    assert partly / right == pytest.approx(0.2, abs=0.05)
    assert left / 1200 == pytest.approx(12.335, abs=0.1)


@pytest.mark.parametrize("shots", [1, 2, 3, 4])
def test_stored_picks_have_no_set_twice_and_come_in_order_of_their_source(shots: int) -> None:
    order = ["beam", "sample", "random", "similarity"]
    of = world(shots=shots)
    for query in of.queries:
        assert all(len(set(one.picks)) == shots and set(one.picks) <= set(query.pool) for one in query.stored)
        assert len({frozenset(one.picks) for one in query.stored}) == len(query.stored) <= query.proposed == 15
        sources = [one.source for one in query.stored]
        assert sources == sorted(sources, key=order.index)
        assert sources[0] == "beam"


def test_beam_scores_are_log_probs_of_ordered_picks_and_the_first_beam_is_the_most_probable() -> None:
    of = world()
    for query in range(5):
        ordered = np.array(list(itertools.permutations(of.queries[query].pool, 2)))
        scores = of.scores(np.full(90, query), ordered).beam_score_N
        assert np.exp(scores).sum() == pytest.approx(1)
        # A width of 5 over two picks misses the best pair hardly ever; here never.
        assert tuple(ordered[scores.argmax()].tolist()) == of.queries[query].stored[0].picks


def test_similar_sets_are_the_nearest_ones() -> None:
    of = world()
    query = of.queries[0]
    cosines = of.candidate_embeddings @ of.query_embeddings[0]
    nearest = sorted(itertools.combinations(query.pool, 2), key=lambda pair: -float(cosines[list(pair)].sum()))[:5]
    stored = {frozenset(one.picks) for one in query.stored}
    assert {frozenset(pair) for pair in nearest} <= stored  # as similarity's, or as an earlier source's
    similar = {frozenset(one.picks) for one in query.stored if one.source == "similarity"}
    assert similar <= {frozenset(pair) for pair in nearest}


@pytest.mark.parametrize("shots", [1, 2, 3])
def test_no_picks_beat_the_best_and_baselines_are_means_over_all_sets(shots: int) -> None:
    of = world(6, likeness=0.5)
    pools = [query.pool for query in of.queries]
    baselines = of.baselines(range(6), pools, shots)
    expected = [
        of.scores(np.full(math.comb(10, shots), query), everything(of, query, shots)).expected_N for query in range(6)
    ]
    assert baselines["best"] == pytest.approx(np.mean([one.max() for one in expected]))
    assert baselines["random"] == pytest.approx(np.mean([one.mean() for one in expected]))
    assert baselines["random"] < baselines["nearest"] <= baselines["best"]


def test_a_pool_with_too_many_sets_has_no_mean_over_all_of_them() -> None:
    of, pools = world(2, bank=400), [tuple(range(400))] * 2
    assert set(of.baselines([0, 1], pools, 3)) == {"best", "nearest"}  # 10.6 million sets; of rivals there are few
    assert set(of.baselines([0, 1], pools, 3, most_sets=10)) == {"nearest"}


def test_of_equal_candidates_one_is_enough_for_the_best() -> None:
    """A pool in which every candidate stands twice has the same best as the pool itself, one pick at a time."""
    of = world(3, likeness=0.5)
    pools = [query.pool for query in of.queries]
    twice = [(*pool, *pool) for pool in pools]
    assert of.baselines(range(3), twice, 1)["best"] == pytest.approx(of.baselines(range(3), pools, 1)["best"])


def test_relevance_and_complementarity_both_count() -> None:
    """Of two sets the one whose candidates are likelier to be relevant, and cover more, is expected to do better."""
    of = world(60, likeness=0.0, learnable=1.0, embedding_noise=0.0)
    gains = []
    for query in range(60):
        pool = sorted(
            of.queries[query].pool,
            key=lambda index: -float(of.candidate_embeddings[index] @ of.query_embeddings[query]),
        )
        best, worst = of.scores(np.full(2, query), np.array([pool[:2], pool[-2:]])).gt_prob_N
        gains.append(best > worst)
    assert np.mean(gains) > 0.9
