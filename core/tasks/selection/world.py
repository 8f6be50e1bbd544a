"""The built-in generator: queries, candidates, an answerer whose truth is known, and picks stored beforehand.

**Queries and candidates.** A candidate is a sharp mixture over topics (Dirichlet 0.1), a query needs a few topics with
weights (Dirichlet 1). An embedding is the unit vector of a linear map of mixture or needs (itself made a unit vector) +
noise. A query's own pool is drawn from the bank without looking.

**Fit** of a set of candidates to a query: mean relevance + complementarity. Relevance: sum of need x mixture over the
topics. Complementarity: the share of the needs that the set covers, a topic as far as its best candidate does. The fit
is standardised by mean and deviation over all pairs of the query's own pool, whatever pool a policy picks from.

**Answer.** With L = `likeness` and R = `learnable`

    z = sqrt(L) u(query) + sqrt(1 - L) (sqrt(R) fit + sqrt(1 - R) eps(query, set))

u and eps are standard normal hashes of (data_seed, query, sorted set): asking twice gives the same answer. Accuracy is
1 above the upper threshold of z, .6 between the two, else 0; right is an accuracy above 0. The expectation over eps is
exact.

**Stored picks.** A proposal scores candidates by standardised relevance + noise, divided by a temperature: 5 beams over
ordered picks, 2 samples at temperature 1.0, 2 at 1.3 (without replacement), 1 random, the 5 nearest sets by embeddings.
Of equal sets the first in this order stays. A beam score is the log-prob of the ordered picks under the proposal.

**Which number comes from which published marginal** (documents 001 and 004). Nothing is fitted to what a policy learns,
or to how many groups are live.

| number | marginal |
|---|---|
| lower threshold | 54.99 % of the stored picks are right: at every likeness, in expectation over u and eps |
| none | 55 % of the queries have a positive: where the sets of a query are answered alike, it is the share above |
| 5 + 2 + 2 + 1 + 5 stored picks | the documents' own |
| PROPOSAL_TEMPERATURE | 9,868 picks of 800 queries are left without duplicates: 12.335 of 15 |
| 64 candidates, width 512 | the documents' own |
| PROPOSAL_NOISE 2, `partly_right` .2, `learnable` .5 | none: stated, not measured |
| `embedding_noise` .5, 16 topics, 3 needs, bank of 512, Dirichlet 0.1 and 1 | none: stated, not measured |

A query is the same however many others there are: its draws are its own, and the thresholds are fixed on the first 64.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property
from itertools import chain, combinations
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from core.config.task import SelectionWorldSpec
from core.tasks.selection.queries import SOURCES, PickTuple, Query, Scores, StoredPicks

if TYPE_CHECKING:
    from core.tasks.selection.queries import Floats, Ints

    U64 = NDArray[np.uint64]

RIGHT_SHARE = 0.5499  # of the stored pick tuples
PARTLY = 0.6  # the accuracy between the thresholds
MIXTURE_SHARPNESS = 0.1
BEAMS, SAMPLES, RANDOM, SIMILAR = 5, {1.0: 2, 1.3: 2}, 1, 5
PROPOSAL_NOISE = 2.0  # stated: beside the standardised relevance
PROPOSAL_TEMPERATURE = 2.0  # leaves 12.31 of 15 (three seeds), where 12.335 are published
GT_PROB = 1e-6  # the most that the probability of a right answer is
CALIBRATION = 64  # queries that the thresholds are fixed on
MOST_SETS = 1_000_000  # of a query's pool that a baseline enumerates
_AT_ONCE = 1 << 14  # sets, so that they stay in the processor's cache


class World:
    """`count` queries of a seed and their bank; see core.tasks.selection.queries.SelectionData."""

    complete = True

    def __init__(self, spec: SelectionWorldSpec, *, data_seed: int, count: int, shots: int) -> None:
        self.spec, self.shots, self._seed = spec, shots, data_seed
        drawn, topics = max(count, CALIBRATION), spec.topics
        mixture_BT = self._draws("mixture").standard_gamma(MIXTURE_SHARPNESS, (spec.bank, topics)) + 1e-12
        self._mixture_BT = mixture_BT / mixture_BT.sum(-1, keepdims=True)
        self._topics_Qn = np.argsort(self._draws("needs").random((drawn, topics)))[:, : spec.needs]
        weights_Qn = self._draws("weights").standard_exponential((drawn, spec.needs))
        self._weights_Qn = -np.sort(-weights_Qn / weights_Qn.sum(-1, keepdims=True))
        self._pool_QK = np.argsort(self._draws("pools").random((drawn, spec.bank)))[:, : spec.candidates]
        self._relevance_QB = _weighted_rows(self._weights_Qn, self._topics_Qn, self._mixture_BT.T)
        embeddings_Qd, self.candidate_embeddings = self._embeddings()
        self.query_embeddings = embeddings_Qd[:count]
        self._logits_QB = self._proposal()
        self._fit_mean_Q, self._fit_std_Q = self._fit_moments()
        self._u_Q = _normals(_hash(self._seed, np.arange(drawn), np.empty((drawn, 0), dtype=np.int64)))
        stored_QMS, unique_QM = self._stored(embeddings_Qd)
        self._lower, self._upper = self._thresholds(stored_QMS[:CALIBRATION], unique_QM[:CALIBRATION])
        self.queries: Sequence[Query] = [
            self._query(query, stored_QMS[query], unique_QM[query]) for query in range(count)
        ]

    def _draws(self, purpose: str) -> np.random.Generator:
        """A stream of its own for each purpose, whose first rows do not depend on how many follow."""
        return np.random.Generator(np.random.Philox(np.random.SeedSequence([self._seed, *purpose.encode()])))

    def _embeddings(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        spec = self.spec
        map_Td = self._draws("map").standard_normal((spec.topics, spec.width))
        all_BT = np.broadcast_to(np.arange(spec.topics), self._mixture_BT.shape)

        def noisy(plain: Floats, purpose: str) -> NDArray[np.float32]:
            noise = self._draws(purpose).standard_normal(plain.shape) / math.sqrt(spec.width)
            return _unit(_unit(plain) + spec.embedding_noise * noise).astype(np.float32)

        queries_Qd = noisy(_weighted_rows(self._weights_Qn, self._topics_Qn, map_Td), "query noise")
        return queries_Qd, noisy(_weighted_rows(self._mixture_BT, all_BT, map_Td), "bank noise")

    def _proposal(self) -> Floats:
        """(Q, B) logits, also of candidates outside a query's own pool."""
        own_QK = np.take_along_axis(self._relevance_QB, self._pool_QK, -1)
        standard_QB = (self._relevance_QB - own_QK.mean(-1, keepdims=True)) / (own_QK.std(-1, keepdims=True) + 1e-12)
        noise_QB = self._draws("proposal").standard_normal(self._relevance_QB.shape)
        logits_QB: Floats = (standard_QB + PROPOSAL_NOISE * noise_QB) / PROPOSAL_TEMPERATURE
        return logits_QB

    def _fit_moments(self) -> tuple[Floats, Floats]:
        """(Q,) mean and deviation of the fit over all pairs of each query's own pool."""
        pairs = _sets(self.spec.candidates, 2)
        fits = [self._raw_fit_of_sets(query, pool_K, pairs) for query, pool_K in enumerate(self._pool_QK)]
        return np.array([fit.mean() for fit in fits]), np.array([fit.std() for fit in fits]) + 1e-12

    def _raw_fit_of_sets(self, query: int, pool_K: Ints, sets: Sequence[Ints]) -> Floats:
        """The fit, not yet standardised, of many sets of one query's pool: `sets` has the positions of each pick."""
        relevance_K = self._relevance_QB[query, pool_K]
        fit: Floats = np.mean([relevance_K[position] for position in sets], axis=0)
        for topic, weight in zip(self._topics_Qn[query], self._weights_Qn[query], strict=True):
            share_K, covered = self._mixture_BT[pool_K, topic], np.zeros(1)
            for position in sets:
                covered = np.maximum(covered, share_K[position])
            fit = fit + weight * covered
        return fit

    def _fit(self, query_N: Ints, picks_NS: Ints) -> Floats:
        """(N,) standardised fits of picks, one query each."""
        relevance_N = self._relevance_QB[query_N[:, None], picks_NS].mean(-1)
        shares_NSn = self._mixture_BT[picks_NS[:, :, None], self._topics_Qn[query_N][:, None, :]]
        covered_N = (self._weights_Qn[query_N] * shares_NSn.max(1)).sum(-1)
        fit_N: Floats = (relevance_N + covered_N - self._fit_mean_Q[query_N]) / self._fit_std_Q[query_N]
        return fit_N

    @property
    def _scales(self) -> tuple[float, float, float]:
        """What u, the fit and eps weigh in z."""
        likeness, learnable = self.spec.likeness, self.spec.learnable
        rest = 1 - likeness
        return math.sqrt(likeness), math.sqrt(rest * learnable), math.sqrt(rest * (1 - learnable))

    def _thresholds(self, stored_QMS: Ints, unique_QM: NDArray[np.bool_]) -> tuple[float, float]:
        """Where as many stored tuples are right, and entirely right, as should be, in expectation over u and eps."""
        query_N = np.nonzero(unique_QM)[0]
        of_u, of_fit, of_eps = self._scales
        mean_N, spread = of_fit * self._fit(query_N, stored_QMS[unique_QM]), math.hypot(of_u, of_eps)

        def threshold(share: float) -> float:
            low, high = -20.0, 20.0
            for _ in range(60):
                middle = (low + high) / 2
                above = _normal_cdf((mean_N - middle) / max(spread, 1e-12)).mean()
                low, high = (middle, high) if above > share else (low, middle)
            return low

        return threshold(RIGHT_SHARE), threshold(RIGHT_SHARE * (1 - self.spec.partly_right))

    def _expected(self, z_mean: Floats) -> Floats:
        """The accuracy's expectation over eps, where z has this mean."""
        spread = max(self._scales[2], 1e-12)
        above_lower, above_upper = (_normal_cdf((z_mean - edge) / spread) for edge in (self._lower, self._upper))
        return PARTLY * above_lower + (1 - PARTLY) * above_upper

    def scores(self, query_N: Ints, picks_NS: Ints) -> Scores:
        """What the answerer makes of any picks of one length; equal sets of a query always score the same."""
        of_u, of_fit, of_eps = self._scales
        mean_N = of_u * self._u_Q[query_N] + of_fit * self._fit(query_N, picks_NS)
        z_N = mean_N + of_eps * _normals(_hash(self._seed, query_N, np.sort(picks_NS)))
        right_N, wholly_N = z_N > self._lower, z_N > self._upper
        return Scores(
            correct_N=right_N.astype(np.float64),
            accuracy_N=np.where(wholly_N, 1.0, np.where(right_N, PARTLY, 0.0)),
            gt_prob_N=GT_PROB * _normal_cdf(z_N),
            rel_N=np.clip(self._relevance_QB[query_N[:, None], picks_NS].mean(-1), 0, 1),
            beam_score_N=self._beam_scores(query_N, picks_NS),
            expected_N=self._expected(mean_N),
        )

    @cached_property
    def _masses(self) -> tuple[Floats, NDArray[np.bool_]]:
        """(Q, B) exp of the logits, each query's largest taken as 1, and which candidates are its own."""
        own_QB = np.zeros(self._logits_QB.shape, dtype=np.bool_)
        np.put_along_axis(own_QB, self._pool_QK, values=True, axis=-1)
        return np.exp(self._logits_QB - self._logits_QB.max(-1, keepdims=True)), own_QB

    def _beam_scores(self, query_N: Ints, picks_NS: Ints) -> Floats:
        """(N,) log-probs of ordered picks among what is left of the query's own pool (a stranger joins it)."""
        mass_QB, own_QB = self._masses
        left_N, total_N = (mass_QB * own_QB).sum(-1)[query_N], np.zeros(len(query_N))
        for picks_N in picks_NS.T:
            mass_N, own_N = mass_QB[query_N, picks_N], own_QB[query_N, picks_N]
            left_N = np.maximum(left_N + np.where(own_N, 0, mass_N), mass_N)
            total_N += np.log(mass_N / left_N)
            left_N = left_N - mass_N
        return total_N

    def _stored(self, embeddings_Qd: NDArray[np.float32]) -> tuple[Ints, NDArray[np.bool_]]:
        """(Q, M, S) global indices of all proposals, of each query in the order of SOURCES, and which are new."""
        spec, logits_QK = self.spec, np.take_along_axis(self._logits_QB, self._pool_QK, -1)
        parts = [_beam_search(logits_QK, self.shots, BEAMS)]
        for temperature, count in SAMPLES.items():
            # The largest of logits + Gumbel noise are picks without replacement.
            waits = self._draws(f"sample {temperature}").standard_exponential((len(logits_QK), count, spec.candidates))
            parts.append(_largest(logits_QK[:, None] / temperature - np.log(waits), self.shots))
        anything = self._draws("random").random((len(logits_QK), RANDOM, spec.candidates))
        nearness_QB = embeddings_Qd.astype(np.float64) @ self.candidate_embeddings.T.astype(np.float64)
        nearness_QK = np.take_along_axis(nearness_QB, self._pool_QK, -1)
        parts += [_largest(anything, self.shots), _nearest_sets(nearness_QK, self.shots, SIMILAR)]
        positions_QMS = np.concatenate(parts, axis=1)
        stored_QMS = np.take_along_axis(self._pool_QK[:, None], positions_QMS, -1)
        sorted_QMS = np.sort(stored_QMS)
        equal_QMM = (sorted_QMS[:, :, None] == sorted_QMS[:, None]).all(-1)
        return stored_QMS, ~np.tril(equal_QMM, -1).any(-1)

    def _query(self, query: int, stored_MS: Ints, unique_M: NDArray[np.bool_]) -> Query:
        counts = dict(zip(SOURCES, (BEAMS, sum(SAMPLES.values()), RANDOM, SIMILAR), strict=True))
        sources = chain.from_iterable([source] * count for source, count in counts.items())
        needs = zip(self._topics_Qn[query].tolist(), self._weights_Qn[query].tolist(), strict=True)
        return Query(
            id=f"query-{query:05d}",
            question=f"needs {', '.join(f'topic {topic} ({weight:.2f})' for topic, weight in needs)}",
            pool=tuple(self._pool_QK[query].tolist()),
            proposed=len(stored_MS),
            stored=tuple(
                StoredPicks(picks=tuple(picks), source=source)
                for picks, source, unique in zip(stored_MS.tolist(), sources, unique_M.tolist(), strict=False)
                if unique
            ),
            facts={"topic": int(self._topics_Qn[query, 0])},
        )

    def baselines(
        self, query_Q: Sequence[int], pools: Sequence[PickTuple], shots: int, *, most_sets: int | None = None
    ) -> Mapping[str, float]:
        """`random` (the mean over all sets of `shots` picks), `nearest` (by cosine), `best` (the best set), all exact.

        `random` and `best` are left out where that is more sets of a query than `most_sets`, or than MOST_SETS.
        """
        limit = MOST_SETS if most_sets is None else most_sets
        found: dict[str, list[float]] = {"random": [], "best": []}
        nearest_QS = []
        for query, pool in zip(query_Q, pools, strict=True):
            pool_K = np.array(pool)
            nearness_K = self.candidate_embeddings[pool_K] @ self.query_embeddings[query]
            nearest_QS.append(pool_K[_largest(nearness_K, shots)])
            if (sets := math.comb(len(pool), shots)) <= limit:
                total = sum(float(of.sum()) for of in self._expected_of_sets(query, pool_K, shots))
                found["random"].append(total / sets)
            rivals_R = self._unbeaten(query, pool_K, shots)
            if math.comb(len(rivals_R), shots) <= limit:
                found["best"].append(max(float(of.max()) for of in self._expected_of_sets(query, rivals_R, shots)))
        found["nearest"] = self.scores(np.array(query_Q), np.array(nearest_QS)).expected_N.tolist()
        return {name: sum(of) / len(of) for name, of in sorted(found.items()) if len(of) == len(query_Q)}

    def _expected_of_sets(self, query: int, pool_K: Ints, picks: int) -> Iterator[Floats]:
        """The expected accuracies of all sets of so many picks, part after part."""
        (of_u, of_fit, _), sets = self._scales, _sets(len(pool_K), picks)
        for start in range(0, len(sets[0]), _AT_ONCE):
            fit = self._raw_fit_of_sets(query, pool_K, [of[start : start + _AT_ONCE] for of in sets])
            standard = (fit - self._fit_mean_Q[query]) / self._fit_std_Q[query]
            yield self._expected(of_u * self._u_Q[query] + of_fit * standard)

    def _unbeaten(self, query: int, pool_K: Ints, picks: int) -> Ints:
        """The candidates that fewer than `picks` others are at least as good as for each of the query's needs.

        A best set is among them: the fit rises with every share, so whoever is beaten by `picks` others can be
        replaced by one of those that is not in the set.
        """
        shares_nK = self._mixture_BT[pool_K][:, self._topics_Qn[query]].T
        place_K = np.argsort(np.argsort(-shares_nK.sum(0), kind="stable"))
        beats_KK = place_K[:, None] < place_K  # so that of two equal ones one beats the other
        for share_K in shares_nK:
            beats_KK &= share_K[:, None] >= share_K
        unbeaten: Ints = pool_K[beats_KK.sum(0) < picks]
        return unbeaten


@cache
def _sets(count: int, size: int) -> tuple[Ints, ...]:
    """All sets of `size` out of range(count): the positions of the first pick of each, of the second, ..."""
    flat = np.fromiter(chain.from_iterable(combinations(range(count), size)), dtype=np.int64)
    return tuple(np.ascontiguousarray(column) for column in flat.reshape(-1, size).T)


def _weighted_rows(weights_Rn: Floats, index_Rn: Ints, rows: Floats) -> Floats:
    """(R, ...) sums of weight x row. No matrix product: that may round differently for another number of rows."""
    total = np.zeros((len(weights_Rn), rows.shape[-1]))
    for weight_R, index_R in zip(weights_Rn.T, index_Rn.T, strict=True):
        total += weight_R[:, None] * rows[index_R]
    return total


def _unit(rows: Floats) -> Floats:
    unit: Floats = rows / np.linalg.norm(rows, axis=-1, keepdims=True)
    return unit


def _largest(values: Floats, count: int) -> Ints:
    """(..., count) positions of the largest along the last dimension, the largest first."""
    return np.argsort(-values, axis=-1, kind="stable")[..., :count]


def _beam_search(logits_QK: Floats, picks: int, width: int) -> Ints:
    """(Q, width, picks) the most probable ordered picks without replacement that a beam search of this width keeps."""
    queries, candidates = logits_QK.shape
    beams_QWS = np.empty((queries, 1, 0), dtype=np.int64)
    scores_QW = np.zeros((queries, 1))
    for _ in range(picks):
        logits_QWK = np.repeat(logits_QK[:, None], beams_QWS.shape[1], axis=1)
        np.put_along_axis(logits_QWK, beams_QWS, -np.inf, -1)
        top_QW1 = logits_QWK.max(-1, keepdims=True)
        logprobs_QWK = logits_QWK - top_QW1 - np.log(np.exp(logits_QWK - top_QW1).sum(-1, keepdims=True))
        totals = (scores_QW[:, :, None] + logprobs_QWK).reshape(queries, -1)
        kept_QW = _largest(totals, width)
        scores_QW = np.take_along_axis(totals, kept_QW, -1)
        before = np.take_along_axis(beams_QWS, (kept_QW // candidates)[:, :, None], 1)
        beams_QWS = np.concatenate([before, (kept_QW % candidates)[:, :, None]], -1)
    return beams_QWS


def _nearest_sets(nearness_QK: Floats, picks: int, count: int) -> Ints:
    """(Q, count, picks) the sets with the largest sums of nearness. Each lies among the picks + count - 1 nearest."""
    near_QR = _largest(nearness_QK, picks + count - 1)
    ranks_CS = np.stack(_sets(near_QR.shape[1], picks), -1)
    sums_QC = np.take_along_axis(nearness_QK, near_QR, -1)[:, ranks_CS].sum(-1)
    return near_QR[np.arange(len(near_QR))[:, None, None], ranks_CS[_largest(sums_QC, count)]]


def _mixed(hashes: U64) -> U64:
    """SplitMix64's finaliser: equal bits in, equal bits out, anything else looks random (Steele et al. 2014)."""
    hashes = hashes + np.uint64(0x9E3779B97F4A7C15)
    hashes = (hashes ^ (hashes >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    hashes = (hashes ^ (hashes >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return hashes ^ (hashes >> np.uint64(31))


def _hash(seed: int, query_N: Ints, sorted_NS: Ints) -> U64:
    """(N,) 64 bits that belong to a seed, a query and a sorted set."""
    hashes = _mixed(_mixed(np.array([seed], dtype=np.uint64)) ^ query_N.astype(np.uint64))
    for member_N in sorted_NS.T:
        hashes = _mixed(hashes ^ member_N.astype(np.uint64))
    return hashes


def _normals(hashes: U64) -> Floats:
    """A standard normal number of each hash (Box and Muller's, of two uniforms)."""
    first, second = ((_mixed(hashes ^ np.uint64(stream)) >> np.uint64(11)) * 2.0**-53 for stream in (1, 2))
    normals: Floats = np.sqrt(-2 * np.log1p(-first)) * np.cos(2 * math.pi * second)
    return normals


_NODES = 256  # a unit of the table below
_EDGE = 9.0


@cache
def _cdf_table() -> tuple[Floats, Floats]:
    """The normal distribution function and its slope over one node, from -9 to 9."""
    places = np.linspace(-_EDGE, _EDGE, int(2 * _EDGE) * _NODES + 1)
    values = [0.5 * math.erfc(-place / math.sqrt(2)) for place in places.tolist()]
    return np.array(values), np.exp(-(places**2) / 2) / math.sqrt(2 * math.pi) / _NODES


def _normal_cdf(places: Floats) -> Floats:
    """The normal distribution function within 1e-12: cubic Hermite interpolation of math.erfc, numpy having none."""
    values, slopes = _cdf_table()
    steps = (np.clip(places, -_EDGE, _EDGE) + _EDGE) * _NODES
    node = np.minimum(steps.astype(np.int64), len(values) - 2)
    t = steps - node
    left, right, rise = values[node], values[node + 1], values[node + 1] - values[node]
    # 0 and 1 at the ends, and the slopes of both: Hermite's cubic in Bernstein's form.
    bend = t * (1 - t) * ((1 - t) * (slopes[node] - rise) - t * (slopes[node + 1] - rise))
    interpolated: Floats = left * (1 - t) + right * t + bend
    return interpolated
