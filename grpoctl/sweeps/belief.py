"""What is believed of every candidate of a search, whole runs or not: one normal model of all runs so far.

    y[c, s, k] = seed[s, k] + worth[c, k] + noise[c, s, k]

of candidate c with seed s at the k-th share of a run. The worth of a candidate at the shares is correlated, and so is
the noise of a run: so a run that was not gone on with still says something of its end, with the error that this has.
What a seed does to all cancels (common random numbers). Which runs were gone on with was decided by what had been
seen, so that nothing is biased by their having been chosen, as long as all that was seen is in the model (missing at
random: Rubin 1976). Covariances are fitted by EM with the seeds' effects integrated out, as REML does. Some candidates
are worth far less than others, and some fail now and then: a candidate's own covariances are the common ones times a
factor, as in t distributions (Lange, Little and Taylor 1989), so that a few such do not pass for everybody's noise.

Shapes: C candidates, S seeds, K shares, R runs, N draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Counts = NDArray[np.int64]

DRAWS = 2000  # of what is believed: a probability of .9 then has a standard error of .007
MOST_NORMALS = 1_000_000  # drawn; with many candidates there are fewer draws
FEWEST_DRAWS = 500
STEPS = 30  # of EM
TAIL_DF = 4  # of the t distributions of worth, and of the noise from candidate to candidate: some fail now and then
MOST_FITTED = 200  # candidates that the covariances are fitted to
PRIOR_DF = 4  # what is believed of the noise before it is seen weighs as so many degrees of freedom
VAGUE = 1e-3  # precision of what is known of the seeds' effects beforehand, in units of a candidate's
LEAST_NOISE = 1e-4  # of the spread between candidates, as variances
PRIOR_LIKENESS = 0.5  # correlation between the shares of a run, before any is seen


@dataclass(frozen=True, kw_only=True, slots=True)
class Belief:
    """Draws of what the candidates are worth at the end of a run, up to what the seeds do to all; and the model."""

    draws_NC: Array
    model: _Model

    @property
    def mean(self) -> Array:
        """What each candidate is held to be worth."""
        mean: Array = self.draws_NC.mean(axis=0)
        return mean

    @property
    def sd(self) -> Array:
        """The standard deviation of what is believed about that."""
        sd: Array = self.draws_NC.std(axis=0)
        return sd

    def right(self, tolerance: float) -> Array:
        """Each candidate's probability of being within `tolerance` of the best one."""
        best_N = self.draws_NC.max(axis=1, keepdims=True)
        right: Array = (self.draws_NC >= best_N - tolerance).mean(axis=0)
        return right

    def beaten(self, choice: int, others: Sequence[int], tolerance: float) -> float:
        """The probability that one of the others is better than the choice by more than `tolerance`."""
        if not others:
            return 0.0
        best_N = self.draws_NC[:, list(others)].max(axis=1)
        return float((best_N > self.draws_NC[:, choice] + tolerance).mean())

    def look(self, place: int, lengths_S: Counts, shares: Sequence[float]) -> tuple[int, int]:
        """(place of a seed, shares): the run of the candidate that makes its worth surest for what it costs.

        Either one more seed to the first share, or the first run that is not whole on to its end. It has one of these.
        """
        weights = self.model.weights * self.model.noise_C[place]
        now = np.linalg.inv(self.model.between) * self.model.between_C[place] + weights[lengths_S].sum(axis=0)
        at, options = (0.0, *shares), list[tuple[float, int, int]]()
        for to in (1, len(shares)):
            short = np.flatnonzero(lengths_S < to)
            if len(short):
                seed = int(short[0])
                before = lengths_S[seed]
                then = now + weights[to] - weights[before]
                gain = float(np.linalg.inv(now)[-1, -1] - np.linalg.inv(then)[-1, -1])
                options.append((gain / (at[to] - at[before]), seed, to))
        _, seed, to = max(options)
        return seed, to


@dataclass(frozen=True, kw_only=True, slots=True)
class _Runs:
    """All runs: what they showed (0 where nothing was), and at how many shares."""

    values_CSK: Array
    lengths_CS: Counts

    def of(self, places: Counts) -> _Runs:
        """Those of some candidates."""
        return _Runs(values_CSK=self.values_CSK[places], lengths_CS=self.lengths_CS[places])


@dataclass(frozen=True, kw_only=True, slots=True)
class _Model:
    """Covariances of worth and noise over the shares, and how much larger a candidate's own are: 1 / weight."""

    between: Array
    noise: Array
    between_C: Array
    noise_C: Array

    @property
    def weights(self) -> Array:
        """(K+1, K, K): how much a run that has come to so many shares says."""
        shares = len(self.noise)
        weights = np.zeros((shares + 1, shares, shares))
        for k in range(1, shares + 1):
            weights[k, :k, :k] = np.linalg.inv(self.noise[:k, :k])
        return weights


def believed(values_CSK: Array, error: float, key: Sequence[int]) -> Belief:
    """What is believed with runs of these values, NaN where a run has not come to. `error` is an evaluation's own."""
    there_CSK = ~np.isnan(values_CSK)
    centre_K = np.asarray([np.median(values_CSK[..., k][there_CSK[..., k]]) for k in range(values_CSK.shape[2])])
    runs = _Runs(
        values_CSK=np.where(there_CSK, values_CSK - centre_K, 0.0), lengths_CS=there_CSK.sum(axis=2).astype(np.int64)
    )
    count, _, shares = values_CSK.shape
    spread = max(float(np.median(np.abs(runs.values_CSK[:, 0, 0])) * 1.4826) ** 2, error**2, 1e-12)
    alike = (1 - PRIOR_LIKENESS) * np.eye(shares) + PRIOR_LIKENESS
    guesses = spread * alike, max(error**2, LEAST_NOISE * spread) * alike
    fitted = np.argsort(-(100 * runs.lengths_CS.sum(axis=1) + runs.values_CSK[:, 0, 0]), kind="stable")[:MOST_FITTED]
    fitted.sort()
    ones = np.ones(len(fitted))
    model, of_fitted = _Model(between=guesses[0], noise=guesses[1], between_C=ones, noise_C=ones), runs.of(fitted)
    for _ in range(STEPS):
        model = _Posterior.of(of_fitted, model).better(guesses)
    own = [np.ones(count), np.ones(count)]
    own[0][fitted], own[1][fitted] = model.between_C, model.noise_C
    model = _Model(between=model.between, noise=model.noise, between_C=own[0], noise_C=own[1])
    return _drawn(_Posterior.of(runs, model), float(centre_K[-1]), key)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Posterior:
    """Seeds' effects and worths under a model."""

    runs: _Runs
    model: _Model
    seeds_SK: Array
    seeds_cov: Array  # (S*K, S*K)
    worth_CK: Array
    worth_cov_C: Array  # (C, K, K), the seeds' effects given
    by_seeds_C: Array  # (C, K, S*K): how a worth moves with the seeds' effects

    @classmethod
    def of(cls, runs: _Runs, model: _Model) -> _Posterior:
        """By generalised least squares for the seeds' effects, then for each candidate."""
        count, seeds, shares = runs.values_CSK.shape
        weights_CS = model.weights[runs.lengths_CS] * model.noise_C[:, None, None, None]
        prior_C = np.linalg.inv(model.between) * model.between_C[:, None, None]
        worth_cov_C = np.linalg.inv(prior_C + weights_CS.sum(axis=1))
        wide_C = weights_CS.transpose(0, 2, 1, 3).reshape(count, shares, seeds * shares)  # [W_1 ... W_S]
        by_seeds_C = -worth_cov_C @ wide_C
        rows = count * shares, seeds * shares
        information = wide_C.reshape(rows).T @ by_seeds_C.reshape(rows)
        for s in range(seeds):
            at = slice(s * shares, (s + 1) * shares)
            information[at, at] += weights_CS[:, s].sum(axis=0)
        information = (information + information.T) / 2
        information += np.eye(seeds * shares) * VAGUE / float(np.trace(model.between) + np.trace(model.noise))
        seeds_cov = np.linalg.inv(information)
        pulls_CSK = (weights_CS @ runs.values_CSK[..., None])[..., 0]
        pull_CK = pulls_CSK.sum(axis=1)
        effects = seeds_cov @ (pulls_CSK.sum(axis=0).reshape(-1) + by_seeds_C.reshape(rows).T @ pull_CK.reshape(-1))
        worth_CK = (worth_cov_C @ pull_CK[..., None])[..., 0] + by_seeds_C @ effects
        return cls(
            runs=runs, model=model, seeds_SK=effects.reshape(seeds, shares), seeds_cov=seeds_cov, worth_CK=worth_CK,
            worth_cov_C=worth_cov_C, by_seeds_C=by_seeds_C,
        )  # fmt: skip

    def better(self, guesses: tuple[Array, Array]) -> _Model:
        """The model that this posterior speaks for: a step of EM, drawn to the guesses of (worth, noise)."""
        runs, model, (count, _, shares) = self.runs, self.model, self.runs.values_CSK.shape
        moved_C = self.by_seeds_C @ self.seeds_cov @ self.by_seeds_C.transpose(0, 2, 1)
        squares_C = self.worth_CK[:, :, None] * self.worth_CK[:, None] + self.worth_cov_C + moved_C
        far_C = np.einsum("ij,cij->c", np.linalg.inv(model.between), squares_C)
        between_C = (TAIL_DF + shares) / (TAIL_DF + far_C)
        between = (np.einsum("c,cij->ij", between_C, squares_C) + guesses[0]) / (count + 1)
        at_C, at_S = np.nonzero(runs.lengths_CS)
        lengths_R, weights = runs.lengths_CS[at_C, at_S], model.weights
        moves_R = self.by_seeds_C[at_C]
        for k in range(shares):
            moves_R[np.arange(len(at_C)), k, at_S * shares + k] += 1
        rest_RK = runs.values_CSK[at_C, at_S] - self.seeds_SK[at_S] - self.worth_CK[at_C]
        squares_R = rest_RK[:, :, None] * rest_RK[:, None] + self.worth_cov_C[at_C]
        squares_R += moves_R @ self.seeds_cov @ moves_R.transpose(0, 2, 1)
        far_R = np.einsum("rij,rij->r", weights[lengths_R], squares_R)
        amount_C = np.bincount(at_C, lengths_R, minlength=count)
        noise_C = (TAIL_DF + amount_C) / (TAIL_DF + np.bincount(at_C, far_R, minlength=count))
        noise_C[(runs.lengths_CS > 0).sum(axis=1) < 2] = 1.0  # of one run nobody knows
        total = PRIOR_DF * guesses[1]
        for k in range(1, shares + 1):
            those = lengths_R == k
            squares = np.einsum("r,rij->ij", noise_C[at_C[those]], squares_R[those, :k, :k])
            onward = model.noise[:, :k] @ weights[k, :k, :k]  # (K, k): what the rest of a run will be
            total = total + onward @ squares @ onward.T + those.sum() * (model.noise - onward @ model.noise[:k])
        return _Model(between=between, noise=total / (PRIOR_DF + len(at_C)), between_C=between_C, noise_C=noise_C)


def _drawn(posterior: _Posterior, centre: float, key: Sequence[int]) -> Belief:
    """Draws of the worth at the end; with as heavy tails as the degrees of freedom of the noise leave."""
    runs, (count, seeds, shares) = posterior.runs, posterior.runs.values_CSK.shape
    draws = max(FEWEST_DRAWS, min(DRAWS, MOST_NORMALS // count))
    rng = np.random.default_rng(list(key))
    whole_CS = runs.lengths_CS == shares
    df = PRIOR_DF + sum(max(0, int(present) - 1) for present in whole_CS[:, 1:].sum(axis=0))
    scale_N = np.sqrt(df / rng.chisquare(df, draws))
    root = np.linalg.cholesky((posterior.seeds_cov + posterior.seeds_cov.T) / 2)
    off_NC = (rng.standard_normal((draws, seeds * shares)) @ root.T) @ posterior.by_seeds_C[:, -1].T
    off_NC += np.sqrt(posterior.worth_cov_C[:, -1, -1]) * rng.standard_normal((draws, count))
    level = centre + float(posterior.seeds_SK[whole_CS.any(axis=0), -1].mean())
    draws_NC = level + posterior.worth_CK[:, -1] + scale_N[:, None] * off_NC
    return Belief(draws_NC=draws_NC, model=posterior.model)
