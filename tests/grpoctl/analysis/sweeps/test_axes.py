"""Which trial stands on which level of which axis."""

from __future__ import annotations

import math
from typing import Any

import pytest

from core.health.statistics import t_quantile
from grpoctl.analysis.sweeps.axes import axes_of, marginals, table_axes, two_way, varied
from grpoctl.analysis.sweeps.ranking import ranked
from tests.studies import AXES, BETA, FAULT, KL, LR, SCALE, K, advantage_study, axis, ladder_study, study, trial


def levels(values: list[Any], spec: dict[str, Any], key: str = "a.b") -> list[tuple[str, tuple[int, ...]]]:
    trials = [trial(number, params={key: value}) for number, value in enumerate(values)]
    (found,) = axes_of(study(trials, axes={key: spec}))
    return [(level.label, level.numbers) for level in found.levels]


def test_values_stand_in_the_order_of_the_spec_and_numbers_in_their_own() -> None:
    spec = axis(["group", "batch", "none"])
    assert levels(["none", "group", "none"], spec) == [("group", (1,)), ("none", (0, 2))]
    assert levels([8, 2, 8], axis([8, 16, 2])) == [("2", (1,)), ("8", (0, 2))]


def test_lists_null_and_truth_are_values_of_their_own() -> None:
    found = levels([[], [FAULT], None, True, 1, []], axis([[], [FAULT], None, True, 1]))
    assert found == [("[]", (0, 5)), (f"[{FAULT}]", (1,)), ("null", (2,)), ("true", (3,)), ("1", (4,))]


def test_a_range_is_binned_by_ratio_on_a_log_axis() -> None:
    # 1 to 10,000 in four: 1, 10, 100, 1000; nine values, for up to eight stand for themselves
    values = [1.0, 9.9, 10.1, 99.0, 101.0, 999.0, 1001.0, 9999.0, 10000.0]
    spec = axis(low=1, high=10_000, log=True)
    assert [numbers for _, numbers in levels(values, spec)] == [(0, 1), (2, 3), (4, 5), (6, 7, 8)]
    assert levels(values, spec)[0][0] == "1 to 10"
    assert [label for label, _ in levels([1.0, 30.0], spec)] == ["1 to 10", "10 to 100"]
    assert [label for label, _ in levels([1, 30], {**spec, "type": "int"})] == ["1", "30"]


def test_a_value_on_a_border_belongs_to_the_bin_above_it() -> None:
    assert levels([0.0, 1.0, 4.0], axis(low=0, high=4)) == [("0 to 1", (0,)), ("1 to 2", (1,)), ("3 to 4", (2,))]


def test_a_conditional_axis_leaves_out_the_trials_it_did_not_act_in() -> None:
    trials = [trial(0, params={BETA: 0.0}), trial(1, params={BETA: 0.05, KL: "k2"})]
    by_key = {one.key: one for one in axes_of(study(trials, axes={BETA: AXES[BETA], KL: AXES[KL]}))}
    assert [level.numbers for level in by_key[KL].levels] == [(1,)]
    assert varied(by_key.values()) == [by_key[BETA]]


def test_named_candidates_are_one_axis() -> None:
    (found,) = axes_of(ladder_study())
    assert (found.key, [level.label for level in found.levels]) == ("candidate", ["A", "A+B", "C"])


def test_the_table_is_over_k_and_normalisation_else_over_the_most_important() -> None:
    document = advantage_study()
    axes = axes_of(document)
    pair = table_axes(axes, {})
    assert pair is not None
    assert [one.key for one in pair] == [K, SCALE]
    rest = [one for one in axes if one.key != SCALE]
    important = table_axes(rest, {KL: 0.5, LR: 0.4, K: 0.1})
    assert important is not None
    assert [one.key for one in important] == [LR, KL]  # in the order of the spec
    assert table_axes(axes[:1], {}) is None


PAIR = {K: axis([2, 8]), SCALE: axis(["group", "none"])}
TRIALS = [
    trial(0, [0.2], params={K: 2, SCALE: "group"}),
    trial(1, [0.4], params={K: 2, SCALE: "none"}),
    trial(2, [0.8], params={K: 8, SCALE: "group"}),
    trial(3, [0.3], "PRUNED", params={K: 8, SCALE: "none"}),
]


def test_a_mean_by_value_with_the_spread_pooled_over_values() -> None:
    scores = [0.3, 0.5, 0.4, 0.4]  # of K=2: squares 0.02 over three degrees of freedom; K=8 has one ranked trial
    trials = [trial(number, [score], params={K: 2}) for number, score in enumerate(scores)]
    trials += [trial(4, [0.8], params={K: 8}), trial(5, [0.3], "PRUNED", params={K: 8})]
    (k,) = axes_of(study(trials, axes={K: axis([2, 8])}))
    two, eight = marginals(k, ranked(trials), trials, sign=1.0)
    assert two.estimate is not None
    assert eight.estimate is not None
    half = t_quantile(0.975, 3) * math.sqrt(0.02 / 3) / math.sqrt(4)
    assert (two.estimate.mean, two.estimate.n, two.best) == (pytest.approx(0.4), 4, 0.5)
    assert two.estimate.interval == pytest.approx((0.4 - half, 0.4 + half))
    assert (eight.estimate.mean, eight.estimate.n, eight.trials, eight.pruned) == (0.8, 1, 2, 1)
    assert marginals(k, ranked(trials), trials, sign=-1.0)[0].best == 0.3


@pytest.mark.parametrize("scores", [[0.2, 0.4, 0.8], [0.5, 0.5, 0.5, 0.5, 0.5]])
def test_no_interval_by_value_of_few_trials_or_of_equal_ones(scores: list[float]) -> None:
    trials = [trial(number, [score], params={K: 2}) for number, score in enumerate(scores)]
    (k,) = axes_of(study(trials, axes={K: axis([2])}))
    (two,) = marginals(k, ranked(trials), trials, sign=1.0)
    assert two.estimate is not None
    assert two.estimate.interval is None


def test_the_cells_of_two_axes() -> None:
    table = two_way(*axes_of(study(TRIALS, axes=PAIR)), ranked(TRIALS))
    assert [[(cell.mean, cell.n) for cell in line] for line in table.cells] == [
        [(0.2, 1), (0.4, 1)],
        [(0.8, 1), (None, 0)],
    ]
