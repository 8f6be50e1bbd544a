"""Main effects of axes: tables that can be computed by hand, and what is not claimed."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

import pytest

from grpoctl.analysis.sweeps.effects import AxisEffect, axis_effects
from grpoctl.analysis.sweeps.ranking import ranked
from tests.studies import axis, study, trial

A, B = "a.first", "a.second"
AXES = {A: axis(["x", "y"]), B: axis([1, 2, 3])}


def effects_of(scores: list[tuple[dict[str, Any], float]], axes: Any) -> dict[str, AxisEffect]:
    """Of candidates of two seeds that agree."""
    trials = [trial(number, [score, score], params=params) for number, (params, score) in enumerate(scores)]
    return {effect.key: effect for effect in axis_effects(study(trials, axes=axes), ranked(trials))}


def factorial() -> list[tuple[dict[str, Any], float]]:
    """Each of 2 x 3 points twice: +-0.1 by the first axis, +-0.01 by nothing, 0 by the second."""
    return [
        ({A: a, B: b}, 0.5 + (0.1 if a == "y" else -0.1) + 0.01 * twin)
        for a, b, twin in itertools.product("xy", (1, 2, 3), (-1, 1))
    ]


def test_a_balanced_table_by_hand() -> None:
    """Squares about the mean: 12 x 0.01 by the first axis and 12 x 0.0001 left over, with 12 - 1 - 1 - 2 = 8 free."""
    effects = effects_of(factorial(), AXES)
    first, second = effects[A], effects[B]
    left = 0.0012 / 8
    assert first.share == pytest.approx((0.12 - left) / 0.1212)
    assert first.together == pytest.approx((0.12 - 3 * left) / 0.1212)  # three columns of chance
    assert first.judgement == "effect"
    assert [(value.label, value.candidates) for value in first.values] == [("x", 6), ("y", 6)]
    assert [value.effect for value in first.values] == [pytest.approx(-0.1), pytest.approx(0.1)]
    # the mean of six against the mean of all: error sqrt(left / 12), t(8) = 2.306
    assert first.values[1].interval[1] - 0.1 == pytest.approx(2.306 * math.sqrt(left / 12), rel=1e-3)
    assert (second.share, second.judgement) == (0, "no effect seen")
    assert [value.effect for value in second.values] == [pytest.approx(0, abs=1e-12)] * 3
    assert second.p is not None
    assert second.p > 0.5
    assert list(effects) == [A, B]  # the largest first


def test_an_axis_is_credited_only_with_what_no_other_one_explains() -> None:
    """Two axes that always move together: neither can be told from the other."""
    scores = [({A: a, B: 1 if a == "x" else 3}, score) for a, score in
              [("x", 0.4), ("x", 0.41), ("y", 0.6), ("y", 0.61)] * 4]  # fmt: skip
    effects = effects_of(scores, AXES)
    assert [effects[key].share for key in (A, B)] == [pytest.approx(0, abs=1e-6)] * 2
    assert all(effect.judgement != "effect" for effect in effects.values())
    assert all((effect.together or 0) > 0.9 for effect in effects.values())
    assert all(effect.interval is not None and effect.interval[0] == 0 for effect in effects.values())


def test_a_range_is_fitted_on_its_own_scale() -> None:
    """A parabola over the logarithm: explained whole on a log axis, not on a plain one. The middle is the best."""
    values = [10 ** (-4 + 2 * n / 14) for n in range(15)]
    scores = [({A: value}, 0.6 - 0.1 * (math.log10(value) + 3) ** 2) for value in values]
    log = effects_of(scores, {A: axis(low=1e-4, high=1e-2, log=True)})[A]
    plain = effects_of(scores, {A: axis(low=1e-4, high=1e-2)})[A]
    assert log.share is not None
    assert plain.share is not None
    assert log.share > 0.999
    assert plain.share < 0.9
    low, middle, high = (value.effect for value in log.values)
    assert middle > 0 > low
    assert low == pytest.approx(high)
    listed = effects_of(scores, {A: axis(values)})[A]  # a list of numbers over two decades is taken on a log scale
    assert listed.share == pytest.approx(log.share)


def test_where_an_axis_does_not_act_is_a_value_of_its_own() -> None:
    scores = [({A: "y", B: 1 + n % 2} if n % 3 else {A: "x"}, 0.5 + (0.1 if n % 3 else 0.0) + 0.001 * (n % 4))
              for n in range(18)]  # fmt: skip
    effects = effects_of(scores, AXES)
    assert [value.label for value in effects[B].values][-1] == "not active"


def test_few_candidates_are_not_judged() -> None:
    few = effects_of(factorial()[:9], AXES)
    assert {effect.judgement for effect in few.values()} == {"not enough to judge"}
    assert {effect.share for effect in few.values()} == {None}
    # a mean and eight more of nine values, and four free ones beside those nine columns
    many = effects_of([({A: letter}, n / 10) for n, letter in enumerate("abcdefghiabc")], {A: axis(list("abcdefghi"))})
    assert many[A].why.startswith("12 of 12 candidates ranked, 13 are the least")
    assert effects_of(factorial(), AXES)[A].why == ""


def test_scores_dealt_out_at_random_show_an_effect_in_few_studies() -> None:
    """At most 5 of 100 sweeps may show one: of 40, more than 6 would be a chance of 1 in 500."""
    dice = random.Random(3)
    shown = 0
    for _ in range(40):
        scores = [(params, dice.gauss(0.5, 0.1)) for params, _ in factorial()]
        shown += any(effect.judgement == "effect" for effect in effects_of(scores, AXES).values())
    assert shown <= 6


def test_a_candidate_of_more_seeds_counts_more_where_candidates_differ_by_noise_alone() -> None:
    """A mean of 8 seeds has a quarter of the variance of one of 2, so it counts four times as much."""
    many, few = [0.2, 0.8] * 4, [0.4, 1.0]  # means 0.5 and 0.7
    trials = [trial(n, few if n < 3 else many, params={A: "x" if n < 6 else "y"}) for n in range(12)]
    (effect,) = axis_effects(study(trials, axes={A: AXES[A]}), ranked(trials))
    # x: (3 x 0.7 + 3 x 4 x 0.5) / 15 = 0.54 and y 0.5, against (2.1 + 6 + 12) / 39 = 0.51538 over all
    assert [value.effect for value in effect.values] == [
        pytest.approx(0.54 - 0.515385, abs=1e-5),
        pytest.approx(0.5 - 0.515385, abs=1e-5),
    ]
