"""Values that a metric cannot have, of whatever log: which they are, and what becomes of them."""

from __future__ import annotations

import time

import pytest

from core.health.finding import Row
from grpoctl.diagnose.readers.base import impossible, without_absent, without_impossible


@pytest.mark.parametrize(
    ("metric", "value", "wrong"),
    [
        ("completions/valid", 0.0, False),
        ("completions/valid", 1.0, False),
        ("completions/valid", 1.0 + 1e-7, False),  # a mean of float32
        ("completions/valid", 1.01, True),
        ("completions/valid", -0.01, True),
        ("groups/right", 1.5, True),  # of foreign logs
        ("completions/length", -1.0, True),
        ("completions/length", 1e6, False),
        ("grad_norm", -1e-9, True),
        ("learning_rate", 0.0, False),
        ("reward/std", -0.1, True),
        ("eval/reward_se", -0.1, True),
        ("rollout/logprob_gap", -0.1, True),
        ("reward/mean", -5.0, False),
        ("kl", -0.1, False),  # estimates may be
        ("no such metric", -1.0, False),
    ],
)
def test_what_a_metric_cannot_be(metric: str, value: float, wrong: bool) -> None:
    assert (impossible(metric, value) is not None) == wrong


def test_a_percentage_is_shown_as_it_is_to_be_written() -> None:
    assert all(how in str(impossible("completions/valid", 87.0)) for how in ("87%", "0.87"))
    assert "%" not in str(impossible("completions/valid", 101.0))
    assert "%" not in str(impossible("completions/valid", -0.5))
    assert "%" not in str(impossible("update", 2.0))  # 0 or 1, no share


def test_only_the_values_that_cannot_be_are_left_out() -> None:
    rows: list[Row] = [
        {"step": 1, "grad_norm": 1.0, "completions/valid": 0.5, "kl": -0.1},
        {"step": 2, "grad_norm": -1.0, "completions/valid": None, "kl": None},
        {"step": 3, "grad_norm": -2.0, "completions/valid": 1.5},
    ]
    kept, notes = without_impossible(rows)
    assert kept == [
        {"step": 1, "grad_norm": 1.0, "completions/valid": 0.5, "kl": -0.1},
        {"step": 2, "completions/valid": None, "kl": None},  # None is a value that was recorded as none
        {"step": 3},
    ]
    first, second = notes
    assert first.startswith("grad_norm: 2 of 3 values")
    assert second.startswith("completions/valid: 1 of 2 values")
    assert without_impossible(rows[:1]) == (rows[:1], [])


def test_a_column_of_which_many_values_cannot_be_is_another_metrics() -> None:
    """A count under a share's name: what is 0 or 1 of it is no share either."""
    counts: list[Row] = [{"step": i, "completions/truncated": float(i % 4)} for i in range(1, 21)]
    kept, notes = without_impossible(counts)
    assert not any("completions/truncated" in row for row in kept)
    assert notes[0].startswith("completions/truncated: 20 of 20 values left out")
    one_wrong: list[Row] = [{"step": i, "completions/truncated": 1.5 if i == 3 else 0.5} for i in range(1, 21)]
    kept, notes = without_impossible(one_wrong)
    assert sum("completions/truncated" in row for row in kept) == 19
    assert notes[0].startswith("completions/truncated: 1 of 20 values left out")


BOTH: dict[str, float | None] = {"reward/mean": 1.0, "kl": 0.1}
NEITHER: dict[str, float | None] = {"reward/mean": None, "kl": None}


@pytest.mark.parametrize(
    ("rows", "kept"),
    [
        # all of a kind is NaN and another metric is told
        ([BOTH | {"eval/reward": None}, NEITHER | {"eval/reward": 0.5}], [2, 1]),
        ([BOTH, NEITHER | {"eval/reward": 0.5}], [2, 3]),  # a row that has what others have not was not filled up
        # one of the kind is a number: the other is none
        ([BOTH | {"eval/reward": None}, BOTH | {"kl": None, "eval/reward": 0.5}], [3, 3]),
        ([BOTH, NEITHER] * 3 + [BOTH], [2, 0] * 3 + [2]),  # nothing is told now and then: no one cause makes both NaN
        ([BOTH, NEITHER, NEITHER, BOTH], [2, 2, 2, 2]),  # once for some time
        ([BOTH, NEITHER], [2, 2]),  # it does not go on
        ([{"loss": 1.0, "kl": 0.1}, {"loss": None, "kl": None}] * 4, [2, 2] * 4),  # by a weight
        ([{"loss": 1.0, "reward/mean": 0.1}, {"loss": None, "reward/mean": None}] * 4, [2, 2] * 4),  # by a reward
        ([BOTH | {"kl": None}, BOTH | {"kl": None}], [2, 2]),  # never a number: for the rules to say
    ],
)
def test_nan_that_says_nothing(rows: list[dict[str, float | None]], kept: list[int]) -> None:
    logged, notes = without_absent(rows)
    assert list(map(len, logged)) == kept
    assert bool(notes) == (kept != list(map(len, rows)))


def test_nan_in_a_table_of_random_holes_is_left_as_it_is() -> None:
    """Which metrics are told together says nothing where it is another set on each row, and takes no time then."""
    rows: list[dict[str, float | None]] = [
        {f"rewards/{name}": None if at >> (name % 11) & 1 else 1.0 for name in range(900)} for at in range(1500)
    ]
    start = time.process_time()
    assert without_absent(rows) == (rows, [])
    assert time.process_time() - start < 5
