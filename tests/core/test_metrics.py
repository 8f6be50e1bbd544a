"""Names of metrics: those that are declared by themselves, families, what a value can be, and near misses."""

from __future__ import annotations

import pytest

from core.metrics import baseline_metric, baseline_of, declared, limits, unknown_metric


@pytest.mark.parametrize(
    ("name", "unit", "better"),
    [
        ("eval/reward", "reward", "higher"),
        ("reward/missing", "fraction", "lower"),
        ("rewards/format", "reward", "higher"),  # of the family rewards/*
        ("eval/rewards/format", "reward", "higher"),
        ("losses/penalty", "1", "lower"),
    ],
)
def test_a_metric_by_itself_or_of_a_family(name: str, unit: str, better: str) -> None:
    metric = declared(name)
    assert metric is not None
    assert (metric.name, metric.unit, metric.better) == (name, unit, better)


@pytest.mark.parametrize("name", ["rewards/", "rewards/a/b", "xrewards/a", "eval/rewards", "reward"])
def test_no_metric(name: str) -> None:
    assert declared(name) is None
    assert limits(name, (0.0, 1.0)) == (None, None)


@pytest.mark.parametrize(
    ("name", "bounds"),
    [
        ("completions/valid", (0.0, 1.0)),
        ("steps", (0.0, None)),
        ("completions/length", (0.0, None)),
        ("kl", (None, None)),
        ("eval/reward", (-2.0, 3.0)),  # the range of the task's rewards
        ("rewards/format", (None, None)),  # a part of the reward has a range of its own
        ("reward/std", (None, None)),
    ],
)
def test_what_a_value_can_be(name: str, bounds: tuple[float | None, float | None]) -> None:
    assert limits(name, (-2.0, 3.0)) == bounds


@pytest.mark.parametrize(
    ("metric", "name"),
    [("eval/reward", "baseline/random"), ("eval/rewards/accuracy_1", "baseline/random.accuracy_1")],
)
def test_a_baseline_is_recorded_under_a_name_that_says_which_metric_it_is_of(metric: str, name: str) -> None:
    assert baseline_metric("random", metric) == name
    assert baseline_of(name) == ("random", metric)
    known = declared(name)
    assert known is not None
    assert (known.kind, known.unit) == ("start", "reward")


def test_nothing_else_is_a_baseline() -> None:
    assert baseline_of("eval/reward") is None


def test_the_range_of_rewards_may_be_unknown() -> None:
    assert limits("eval/reward") == (None, None)


def test_a_near_miss_is_named() -> None:
    assert "eval/reward?" in unknown_metric("eval/rewrad")
    assert "?" not in unknown_metric("zzzzzz")


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("loss_pg", "policy/loss"),
        ("loss_sup", "losses/supervised"),
        ("loss_cons", "losses/consistency"),
        ("train/loss_kl", "losses/penalty"),
        ("advantages_mean", "advantage/mean"),
        ("rewards_std", "reward/std"),
        ("lambda_pg", "weight/policy"),
        ("lambda_sup", "weight/supervised"),
        ("global_reward_std", "reward/running_std"),
    ],
)
def test_document_003s_names_of_metrics_lead_to_ours(theirs: str, ours: str) -> None:
    assert unknown_metric(theirs) == f"did you mean {ours}?"
    assert declared(ours) is not None
