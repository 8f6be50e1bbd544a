"""Which of a prompt's candidates take part, and their weights in reward-weighted cross-entropy (RCE).

Shape suffixes: P prompts, K candidates, C columns of a group, each with so many of them. A missing score is NaN.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from core.algorithms.advantages import Array, line_sum


def kept_counts(scores_PC: ArrayLike, keep: int, *, counts_PC: ArrayLike | None = None) -> Array:
    """How many of each column's candidates are among the best `keep` of their group: (P, C) -> (P, C), whole numbers.

    counts_PC: the candidates of a column; None: one each. Of equal scores the earlier ones stay, missing ones never do.
    Raises: ValueError where keep is below 1.
    """
    if keep < 1:
        raise ValueError(f"keep must be at least 1, got {keep}")
    scores_PC = np.asarray(scores_PC, dtype=np.float64)
    given_PC = np.ones_like(scores_PC) if counts_PC is None else np.asarray(counts_PC, dtype=np.float64)
    present_PC = np.where(np.isnan(scores_PC), 0.0, given_PC)
    order_PC = np.argsort(np.where(np.isnan(scores_PC), np.inf, -scores_PC), axis=-1, kind="stable")
    best_first_PC = np.take_along_axis(present_PC, order_PC, axis=-1)
    before_PC = np.add.accumulate(best_first_PC, axis=-1) - best_first_PC
    kept_PC = np.zeros_like(present_PC)
    np.put_along_axis(kept_PC, order_PC, np.clip(keep - before_PC, 0.0, best_first_PC), axis=-1)
    return kept_PC


def candidate_weights(scores_PK: ArrayLike, *, tau: float, keep: int | None = None) -> Array:
    """softmax(score / tau) over each prompt's `keep` best present candidates, else 0: (P, K) -> (P, K), float64.

    A row sums to 1, or to 0 where nothing is present. Among equal scores at the edge the earlier candidate is kept.
    Raises: ValueError where tau is not positive, keep is below 1, or a score is infinite.
    """
    if tau <= 0:
        raise ValueError(f"tau must be positive, got {tau}")
    scores_PK = np.asarray(scores_PK, dtype=np.float64)
    if np.isinf(scores_PK).any():
        raise ValueError("got an infinite score; scores are finite, or NaN where one could not be computed")
    kept_PK = kept_counts(scores_PK, scores_PK.shape[-1] if keep is None else keep) > 0
    best_P1 = np.where(kept_PK, scores_PK, -np.inf).max(-1, keepdims=True)
    # The scores of others may be NaN, and where a row has none its best is infinite.
    gaps_PK = np.subtract(scores_PK, best_P1, out=np.zeros_like(scores_PK), where=kept_PK)
    powers_PK = np.where(kept_PK, np.exp(gaps_PK / tau), 0.0)
    return powers_PK / np.maximum(line_sum(powers_PK), 1.0)  # the best one's power is 1


def whole(keep: float) -> int:
    """The candidates of a group that take part, from the value of a schedule: rounded, at least one."""
    return max(1, round(keep))
