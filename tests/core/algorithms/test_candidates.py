"""Weights of candidates: softmax tables, top-k and ties."""

from __future__ import annotations

from math import exp, inf, log, nan

import pytest

from core.algorithms.advantages import candidate_weights, kept_counts, whole


@pytest.mark.parametrize(
    ("scores", "tau", "keep", "expected"),
    [
        # exp: 1, 2, 4 -> 1/7, 2/7, 4/7.
        ([0.0, log(2), log(4)], 1.0, None, [1 / 7, 2 / 7, 4 / 7]),
        # Half the temperature squares the odds: 1, 4, 16.
        ([0.0, log(2), log(4)], 0.5, None, [1 / 21, 4 / 21, 16 / 21]),
        # The two best.
        ([0.0, log(2), log(4)], 1.0, 2, [0.0, 1 / 3, 2 / 3]),
        ([log(4), 0.0, log(2)], 1.0, 1, [1.0, 0.0, 0.0]),
        ([0.0, log(2), log(4)], 1.0, 9, [1 / 7, 2 / 7, 4 / 7]),
        # A tie at the edge: the earlier one stays.
        ([0.5, 1.0, 1.0, 1.0], 1.0, 2, [0.0, 0.5, 0.5, 0.0]),
        # Missing scores take no part, and no place.
        ([nan, 0.0, nan, log(3)], 1.0, 2, [0.0, 1 / 4, 0.0, 3 / 4]),
        ([nan, 0.3], 1.0, 2, [0.0, 1.0]),
        ([nan, nan], 1.0, None, [0.0, 0.0]),
        # No overflow, no 0 / 0.
        ([1000.0, 999.0], 0.001, None, [1.0, 0.0]),
        ([-1000.0, -1000.0], 0.001, None, [0.5, 0.5]),
        ([0.0, 1.0], 10.0, None, [1 / (1 + exp(0.1)), exp(0.1) / (1 + exp(0.1))]),
    ],
)
def test_table(scores: list[float], tau: float, keep: int | None, expected: list[float]) -> None:
    got = candidate_weights([scores], tau=tau, keep=keep)
    assert got.tolist() == [pytest.approx(expected, abs=1e-12)]


def test_prompts_do_not_see_each_other() -> None:
    got = candidate_weights([[0.0, 0.0], [9.0, nan], [nan, nan]], tau=1.0, keep=2)
    assert got.tolist() == [[0.5, 0.5], [1.0, 0.0], [0.0, 0.0]]
    assert got.dtype == "float64"


@pytest.mark.parametrize(
    ("score", "tau", "keep", "message"),
    [(0.0, 0.0, None, "tau"), (0.0, -1.0, None, "tau"), (0.0, 1.0, 0, "keep"), (inf, 1.0, None, "infinite")],
)
def test_refusals(score: float, tau: float, keep: int | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        candidate_weights([[score, 1.0]], tau=tau, keep=keep)


@pytest.mark.parametrize(
    ("scores", "counts", "keep", "expected"),
    [
        ([0.3, 0.9, 0.5], None, 2, [0, 1, 1]),
        ([0.5, 1.0, 1.0, 1.0], None, 2, [0, 1, 1, 0]),  # a tie at the edge: the earlier one stays
        ([nan, 0.2, nan], None, 2, [0, 1, 0]),  # missing ones have no place
        # Levels 0, 0.5 and 1, of which 2, 3 and 1 candidates are: the best four are one 1 and three 0.5.
        ([0.0, 0.5, 1.0], [2, 3, 1], 4, [0, 3, 1]),
        ([0.0, 0.5, 1.0], [2, 3, 1], 2, [0, 1, 1]),
        ([0.0, 0.5, 1.0], [2, 3, 1], 9, [2, 3, 1]),
    ],
)
def test_the_best_stay(scores: list[float], counts: list[int] | None, keep: int, expected: list[int]) -> None:
    assert kept_counts([scores], keep, counts_PC=None if counts is None else [counts]).tolist() == [expected]


@pytest.mark.parametrize(("keep", "expected"), [(4.0, 4), (2.6, 3), (0.3, 1)])
def test_a_schedule_s_value_is_rounded_and_leaves_one(keep: float, expected: int) -> None:
    assert whole(keep) == expected
