"""How much of a winner's score is luck: by hand for two and three candidates, and over simulated studies."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest

from core.health.statistics import mean
from grpoctl.analysis.sweeps.ranking import ranked
from grpoctl.analysis.sweeps.selection import SelectionBias, confirmation, fresh_seeds, selection_bias
from tests.studies import study, trial


def bias_of(
    *candidates: Sequence[float], status: str = "COMPLETED", direction: str = "maximize"
) -> SelectionBias | None:
    trials = [trial(number, values, status if number == 0 else "COMPLETED") for number, values in enumerate(candidates)]
    return selection_bias(ranked(trials, direction=direction), sign=1 if direction == "maximize" else -1)


def test_of_equal_candidates_the_luck_is_that_of_the_largest_normal_number() -> None:
    # Two seeds 0.2 apart have sd 0.1414, so each mean has the error 0.1. The larger of two equal normal numbers lies
    # 1/sqrt(pi) = 0.564 standard deviations above their mean, the largest of three 0.846.
    two, three = bias_of([0.5, 0.7], [0.5, 0.7]), bias_of([0.5, 0.7], [0.5, 0.7], [0.5, 0.7])
    assert two is not None
    assert three is not None
    assert two.value == pytest.approx(0.0564, abs=0.005)
    assert three.value == pytest.approx(0.0846, abs=0.005)
    assert (two.corrected, two.contenders, two.spread) == (pytest.approx(0.6 - two.value), 2, 0)


def test_where_less_is_better_the_winner_is_too_low() -> None:
    bias = bias_of([0.5, 0.7], [0.5, 0.7], direction="minimize")
    assert bias is not None
    assert bias.value == pytest.approx(0.0564, abs=0.005)
    assert bias.corrected == pytest.approx(0.6 + bias.value)


def test_a_mean_over_more_seeds_is_known_better() -> None:
    # Every seed has the sd s; of candidates of 2 and 8 seeds the larger lies sqrt((s^2/2 + s^2/8) / (2 pi)) too high
    few, many = [0.5, 0.7], [0.5, 0.7] * 4
    bias = bias_of(few, many)
    assert bias is not None
    s2 = (0.02 + 0.08) / (1 + 7)
    assert bias.value == pytest.approx(math.sqrt((s2 / 2 + s2 / 8) / (2 * math.pi)), abs=0.004)


def test_a_clear_winner_was_not_picked_by_luck() -> None:
    bias = bias_of([0.90, 0.91], [0.50, 0.51], [0.49, 0.50])
    assert bias is not None
    assert (bias.value, bias.corrected, bias.contenders) == (0, pytest.approx(0.905), 1)


def test_where_nothing_tells_noise_nothing_is_said() -> None:
    assert bias_of([0.5], [0.6]) is None  # one seed each
    assert bias_of([0.5, 0.5], [0.6, 0.6]) is None  # seeds that agree to the last digit
    assert bias_of([0.5, 0.6]) is None  # nothing to pick from
    assert bias_of([0.9, 0.8], [0.5, 0.6], status="COLLAPSED") is None


def test_a_winner_noisier_than_the_others_is_noticed() -> None:
    trials = [trial(0, [0.5, 0.7]), trial(1, [0.50, 0.51]), trial(2, [0.50, 0.52])]
    bias = selection_bias(ranked(trials), sign=1, seeds=[0.5, 0.7])
    assert bias is not None
    # its own sd is 0.1414; the others' squares are 0.00005 + 0.0002 over 2 df: sd 0.01118
    assert bias.noisier == pytest.approx(0.141421 / 0.0111803, rel=1e-4)


def errors_of(truths: Sequence[float], studies: int) -> tuple[float, float]:
    """The mean error, in standard errors of a mean, of the winner's score as it is and as corrected."""
    dice = random.Random(1)
    seeds, raw, corrected = 3, [], []
    for _ in range(studies):
        trials = [trial(n, [truth + dice.gauss(0, math.sqrt(seeds)) for _ in range(seeds)])
                  for n, truth in enumerate(truths)]  # fmt: skip
        bias = selection_bias(ranked(trials), sign=1)
        assert bias is not None
        raw.append(bias.score - truths[bias.number])
        corrected.append(bias.corrected - truths[bias.number])
    return mean(raw), mean(corrected)


def test_over_simulated_studies_the_correction_is_right_on_average() -> None:
    """Ten candidates; of equal ones the best is 1.54 standard errors too high. The mean of 60 is known to about 0.1."""
    raw, corrected = errors_of([0.0] * 10, 60)
    assert raw == pytest.approx(1.54, abs=0.3)
    assert abs(corrected) < 0.45
    raw, corrected = errors_of([12.0, *[0.0] * 9], 60)  # a clear winner has nothing to correct
    assert abs(raw) < 0.4
    assert corrected == pytest.approx(raw, abs=0.02)
    raw, corrected = errors_of([-40.0] * 5 + [0.0] * 5, 60)  # half collapsed: only the others are rivals
    assert raw > 0.9
    assert abs(corrected) < 0.45


def test_fresh_seeds_are_the_smallest_that_no_trial_had() -> None:
    document = study([trial(0, [0.5, 0.6]), trial(1, [0.5, 0.6, 0.7])])
    assert fresh_seeds(document, 2) == (3, 4)
    document["seeds"], document["trials"] = [1, 5], [{**document["trials"][0], "seeds": [1, 3]}]
    assert fresh_seeds(document, 4) == (0, 2, 4, 6)


def test_what_fresh_seeds_say_of_a_score() -> None:
    # mean 0.5, sd 0.1, t(2) = 4.303: 0.5 +- 4.303 x 0.1 / sqrt(3) = 0.248
    outcome = confirmation([0.4, 0.5, 0.6], score=0.62, corrected=0.58, sign=1)
    assert outcome.mean == pytest.approx(0.5)
    assert outcome.interval == pytest.approx((0.2516, 0.7484), abs=1e-4)
    assert (outcome.observed_bias, outcome.inside) == (pytest.approx(0.12), True)
    outside = confirmation([0.40, 0.41, 0.42], score=0.62, corrected=0.58, sign=1)
    assert outside.inside is False
    lower = confirmation([0.4, 0.5, 0.6], score=0.62, corrected=None, sign=-1)
    assert (lower.observed_bias, lower.inside) == (pytest.approx(-0.12), None)
    assert confirmation([0.5], score=0.6, corrected=0.6, sign=1).interval is None
