"""The table of what was reached beside baselines, of a run and of two sides."""

from __future__ import annotations

from grpoctl.analysis.baselines import beside_baselines, means_over_seeds, side_by_side

REWARD, FIRST = "eval/reward", "eval/rewards/accuracy_1"


def test_the_table_of_a_run_has_a_column_for_each_metric_and_a_dash_for_what_is_unknown() -> None:
    reached = {"start": {REWARD: 0.5, FIRST: 0.25}, "best_possible": {REWARD: 1.0}}
    (table,) = beside_baselines({"baselines": reached})
    assert table.columns == ("", "reward", "accuracy_1")
    assert table.rows == (("start", "0.500", "0.250"), ("best possible", "1.000", "-"))


def test_without_baselines_there_is_no_table() -> None:
    assert beside_baselines({}) == []
    assert side_by_side({"A": {}, "B": {}}) == []


def test_sides_are_means_over_the_runs_that_have_a_value() -> None:
    results: list[dict[str, object]] = [
        {"baselines": {"final": {REWARD: 0.2}, "random": {REWARD: 0.1}}},
        {"baselines": {"final": {REWARD: 0.4, FIRST: 0.3}, "random": {REWARD: 0.1}}},
        {},
    ]
    means = means_over_seeds(results)
    assert {name: {metric: round(value, 9) for metric, value in of.items()} for name, of in means.items()} == {
        "final": {REWARD: 0.3, FIRST: 0.3},
        "random": {REWARD: 0.1},
    }


def test_equal_baselines_stand_once() -> None:
    a, b = ({"final": {REWARD: reward}, "random": {REWARD: 0.1}} for reward in (0.2, 0.3))
    (table,) = side_by_side({"A": a, "B": b})
    assert [row[0] for row in table.rows] == ["A final", "B final", "random"]
    (table,) = side_by_side({"A": a, "B": {**b, "random": {REWARD: 0.2}}})
    assert [row[0] for row in table.rows] == ["A final", "B final", "A random", "B random"]
    (table,) = side_by_side({"#1": a, "#2": b}, ("final",))
    assert [row[0] for row in table.rows] == ["#1 final", "#2 final", "random"]
