"""What more budget would buy, on curves and scores that can be computed by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from grpoctl.analysis.sweeps.outlook import Longer, MoreSeeds, longer, more_seeds
from grpoctl.analysis.sweeps.ranking import ranked
from tests.studies import trial


def outlook(*gains: Sequence[float], shares: tuple[float, ...] = (0.5, 0.75, 1.0), sign: float = 1.0) -> Longer:
    """Of candidates that end at 0.5 +- 0.01; each seed gained so much over its last quarter."""
    trials = []
    for number, own in enumerate(gains):
        ends = [0.49 + 0.02 * (seed % 2) for seed in range(len(own))]
        curve = [
            [seed, share, end - (gain if share < 1 else 0.0)]
            for seed, (gain, end) in enumerate(zip(own, ends, strict=True))
            for share in shares
        ]
        trials.append(trial(number, ends, curve=curve))
    direction = "maximize" if sign > 0 else "minimize"
    return longer({one["number"]: one for one in trials}, ranked(trials, direction=direction), sign=sign)


def test_a_best_set_that_still_rises() -> None:
    # 0.02, 0.03, 0.03, 0.04: mean 0.03, sd 0.008165, t(3) = 3.182: +- 3.182 x 0.008165 / 2 = 0.01299
    rise = outlook([0.02, 0.03, 0.03, 0.04])
    assert (rise.trend, rise.gain) == ("rising", pytest.approx(0.03))
    assert rise.interval == pytest.approx((0.01701, 0.04299), abs=1e-5)
    assert (rise.candidates, rise.runs) == (1, 4)
    assert outlook([-0.02, -0.03, -0.03, -0.04]).trend == "falling"
    assert outlook([-0.02, -0.03, -0.03, -0.04], sign=-1).trend == "rising"  # a loss that still falls


def test_the_mean_is_over_candidates_and_the_noise_between_seeds() -> None:
    # candidates +0.02 and +0.04, each +-0.01 over two seeds: squares 2 x 0.0002 over 2 df: sd 0.01414
    rise = outlook([0.01, 0.03], [0.03, 0.05])
    assert rise.gain == pytest.approx(0.03)
    # variance (0.0002 / 2 + 0.0002 / 2) / 4 = 0.00005; t(2) = 4.303: 0.0304
    assert rise.interval == pytest.approx((0.03 - 0.030424, 0.03 + 0.030424), abs=1e-5)


def test_flat_and_not_enough_to_judge() -> None:
    assert outlook([0.001, -0.001, 0.001, -0.001], [0.001, -0.001, 0.001, -0.001]).trend == "flat"
    assert outlook([0.2, -0.2], [0.2, -0.2]).trend == "unclear"
    assert outlook([0.1, 0.1], shares=(0.25, 1.0)).trend == "unknown"  # nothing between the first quarter and the end
    assert outlook([0.1, 0.1], shares=(1.0,)).trend == "unknown"
    assert outlook([0.1, 0.1], shares=(0.5, 0.75)).trend == "unknown"  # pruned, or the end was not evaluated
    assert outlook([0.1]).trend == "unknown"  # one seed says nothing of noise


def seeds_for(*candidates: Sequence[float]) -> MoreSeeds | None:
    return more_seeds(ranked([trial(number, values) for number, values in enumerate(candidates)]))


def test_seeds_that_a_difference_takes() -> None:
    # sd 0.1 and a gap of 0.05, which 4 of 5 studies are to find: t(126) at 0.975 and at 0.8 are 1.9790 and 0.8445, and
    # 2.8235 x 0.1 x sqrt(2 / 64) = 0.04991 is below it; of 63 seeds 2.8238 x 0.1 x sqrt(2 / 63) = 0.0503 is not. The
    # limit itself, which half of the studies find, would take 32: 1.9990 x 0.1 x sqrt(2 / 32) = 0.04997
    more = seeds_for([0.5, 0.6, 0.7], [0.55, 0.65, 0.75])
    assert more is not None
    assert (more.first, more.second, more.needed, more.now) == (1, 0, 64, 3)
    assert more.gap == pytest.approx(0.05)
    assert more.least == pytest.approx(2.776445 * 0.1 * (2 / 3) ** 0.5, abs=1e-6)  # t(4), three seeds each
    assert not more.significant


def test_a_gap_that_is_significant_and_one_that_no_number_of_seeds_is_worth() -> None:
    clear, hopeless = seeds_for([0.5, 0.51], [0.9, 0.91]), seeds_for([0.5, 0.6, 0.7], [0.501, 0.601, 0.701])
    assert clear is not None
    assert hopeless is not None
    assert (clear.significant, clear.needed) == (True, 2)
    assert (hopeless.significant, hopeless.needed) == (False, None)
    assert seeds_for([0.5], [0.6]) is None
    assert seeds_for([0.5, 0.6]) is None
