"""What the generator and the files both give: queries with stored pick tuples, and the scores of picks.

Shape suffixes: N picks that are scored together, S picks of each, Q queries, B candidates of the bank, d the width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # what only validates a spec loads no numpy
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

PickTuple = tuple[int, ...]  # global indices, in the order picked

SOURCES = ("beam", "sample", "random", "similarity")  # of stored pick tuples; of equal sets the first of these stays


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredPicks:
    """A pick tuple that was scored beforehand, and the method that proposed it."""

    picks: PickTuple
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Query:
    """A query: `pool` are the global indices of its own candidates, `stored` has no set of picks twice."""

    id: str
    question: str
    pool: PickTuple
    stored: tuple[StoredPicks, ...]
    proposed: int  # stored picks before duplicates were dropped
    facts: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Scores:
    """What the answerer made of N picks; NaN where nobody knows.

    `expected_N` is the accuracy's expectation where the truth is known, else the accuracy.
    """

    correct_N: Floats  # h: 0 or 1
    accuracy_N: Floats  # s: 0, .6 or 1
    gt_prob_N: Floats  # g
    rel_N: Floats  # r
    beam_score_N: Floats  # the log-prob of the picks under what proposed them
    expected_N: Floats


class SelectionData(Protocol):
    """A source of queries, embeddings and scores. Queries are sorted by id and go by their place in that order."""

    queries: Sequence[Query]
    query_embeddings: NDArray[np.float32]  # (Q, d)
    candidate_embeddings: NDArray[np.float32]  # (B, d)

    @property
    def complete(self) -> bool:
        """True where any picks can be scored, not the stored ones alone."""
        ...

    def scores(self, query_N: Ints, picks_NS: Ints) -> Scores:
        """The scores of picks, all of one length."""
        ...

    def baselines(
        self, query_Q: Sequence[int], pools: Sequence[PickTuple], shots: int, *, most_sets: int | None = None
    ) -> Mapping[str, float]:
        """Mean expected accuracies over these queries of picking at random, the nearest, and the best possible.

        What takes more than `most_sets` sets of a pool is left out; of None the data's own limit.
        """
        ...
