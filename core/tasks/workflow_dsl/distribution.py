"""A distribution over the five reward levels: its mean, its quantiles and its expectation after a cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum, isclose

from core.tasks.workflow_dsl.calibration import LEVELS


@dataclass(frozen=True, kw_only=True, slots=True)
class Distribution:
    """Five probabilities, one per level of `LEVELS`. Raises ValueError where they are none."""

    probabilities: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.probabilities) != len(LEVELS) or min(self.probabilities) < 0:
            raise ValueError(f"{len(LEVELS)} probabilities of at least 0 wanted, got {self.probabilities}")
        if not isclose(fsum(self.probabilities), 1.0, abs_tol=1e-9):
            raise ValueError(f"probabilities add up to {fsum(self.probabilities)}, not to 1")

    @property
    def mean(self) -> float:
        """The expected level."""
        return self.expected(0.0)

    def expected(self, cost: float) -> float:
        """E[max(0, level - cost)]: the reward is clipped at 0 before it is averaged, not after."""
        return fsum(p * max(0.0, level - cost) for p, level in zip(self.probabilities, LEVELS, strict=True))

    def quantile(self, u: float) -> float:
        """The smallest level whose cumulative probability is at least `u`, for u in (0, 1); rises with u."""
        if not 0 < u < 1:
            raise ValueError(f"a quantile is asked for at a u in (0, 1), got {u}")
        cumulative = 0.0
        reached = 0.0
        for p, level in zip(self.probabilities, LEVELS, strict=True):
            if p > 0:
                cumulative += p
                reached = level
                if cumulative >= u:
                    break
        return reached  # where rounding left the sum a hair under u: the highest level that can happen


def from_weights(weights: Sequence[float]) -> Distribution:
    """The distribution in proportion to `weights` (counts, or counts and pseudo-counts)."""
    total = fsum(weights)
    return Distribution(probabilities=tuple(weight / total for weight in weights))


def topped_up(counts: Sequence[int], prior: Distribution, size: int) -> Distribution:
    """`counts`, filled up with pseudo-observations of `prior` to `size` observations; `size` or more stand as they are.

    Worked: 6 of 6 right under a prior of mean 0.6, size 24, have mean (6 + 18 * 0.6) / 24 = 0.70.
    """
    missing = max(0, size - sum(counts))
    return from_weights([count + missing * p for count, p in zip(counts, prior.probabilities, strict=True)])


def moved_to(prior: Distribution, mean: float) -> Distribution:
    """`prior` mixed with certain success (level 1) or certain failure (level 0) so that its mean is `mean`."""
    if not 0 <= mean <= 1:
        raise ValueError(f"a mean level lies in [0, 1], got {mean}")
    up = mean >= prior.mean
    share = (mean - prior.mean) / (1 - prior.mean) if up else (prior.mean - mean) / prior.mean
    certain = len(LEVELS) - 1 if up else 0
    return from_weights(
        [(1 - share) * p + (share if index == certain else 0.0) for index, p in enumerate(prior.probabilities)]
    )
