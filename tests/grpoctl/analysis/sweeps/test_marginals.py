"""Means by value, and of pairs of values."""

from __future__ import annotations

import math

import pytest

from core.health.statistics import t_quantile
from grpoctl.analysis.sweeps.axes import axes_of
from grpoctl.analysis.sweeps.marginals import marginals, two_way
from grpoctl.analysis.sweeps.ranking import ranked
from tests.studies import SCALE, K, axis, study, trial

AXES = {K: axis([2, 8]), SCALE: axis(["group", "none"])}
TRIALS = [
    trial(0, [0.2], params={K: 2, SCALE: "group"}),
    trial(1, [0.4], params={K: 2, SCALE: "none"}),
    trial(2, [0.8], params={K: 8, SCALE: "group"}),
    trial(3, [0.3], "PRUNED", params={K: 8, SCALE: "none"}),
]


def test_a_mean_by_value_with_the_spread_pooled_over_values() -> None:
    k, _ = axes_of(study(TRIALS, axes=AXES))
    two, eight = marginals(k, ranked(TRIALS), TRIALS, sign=1.0)
    assert two.estimate is not None
    assert eight.estimate is not None
    # K=2: 0.2 and 0.4, squares 0.02 over one degree of freedom; K=8 has one ranked trial
    half = t_quantile(0.975, 1) * math.sqrt(0.02) / math.sqrt(2)
    assert (two.estimate.mean, two.estimate.n, two.best) == (pytest.approx(0.3), 2, 0.4)
    assert two.estimate.interval == pytest.approx((0.3 - half, 0.3 + half))
    assert (eight.estimate.mean, eight.estimate.n, eight.trials, eight.pruned) == (0.8, 1, 2, 1)
    assert marginals(k, ranked(TRIALS), TRIALS, sign=-1.0)[0].best == 0.2


def test_the_cells_of_two_axes() -> None:
    table = two_way(*axes_of(study(TRIALS, axes=AXES)), ranked(TRIALS))
    assert [[(cell.mean, cell.n) for cell in line] for line in table.cells] == [
        [(0.2, 1), (0.4, 1)],
        [(0.8, 1), (None, 0)],
    ]
