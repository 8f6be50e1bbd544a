"""What is believed of candidates, by tables of runs whose truth is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from grpoctl.sweeps.belief import MOST_FITTED, Array, believed


def table(values_CS: Array) -> Array:
    """Whole runs of one share."""
    return values_CS[:, :, None]


def test_who_is_equal_is_right_and_who_may_be_better_by_chance_is_not_sure() -> None:
    """Ten seeds of noise .02: means within .006 of the truth, for which .05 is a wide tolerance and .001 is none."""
    values = 0.5 + np.random.default_rng(1).normal(0, 0.02, (4, 10))
    belief = believed(table(values), 0.02, [0])
    assert belief.right(0.05).min() > 0.95
    assert belief.right(0.001).max() < 0.8


def test_what_a_seed_does_to_all_cancels() -> None:
    """The second candidate is .05 better with every seed, whatever the seed does."""
    seeds = np.random.default_rng(1).normal(0, 0.3, 6)
    paired = believed(table(np.stack([0.5 + seeds, 0.55 + seeds])), 0.005, [0])
    assert paired.right(0.01).tolist() == pytest.approx([0.0, 1.0], abs=0.05)
    shuffled = believed(table(np.stack([0.5 + seeds, 0.55 + seeds[::-1]])), 0.005, [0])
    assert shuffled.right(0.01)[0] > 0.2


def test_the_best_of_several_noisy_means_is_believed_to_be_less() -> None:
    values = 0.5 + np.random.default_rng(2).normal(0, 0.05, (8, 2))
    belief = believed(table(values), 0.05, [0])
    best = int(values.mean(axis=1).argmax())
    above = values.mean(axis=1) - values.mean()
    assert 0 < belief.mean[best] - belief.mean.mean() < above[best] - 0.01
    assert (belief.sd > 0).all()


def test_beaten_is_what_is_not_right() -> None:
    belief = believed(table(0.5 + np.random.default_rng(1).normal(0, 0.02, (4, 5))), 0.02, [0])
    assert belief.beaten(0, [1, 2, 3], 0.01) == pytest.approx(1 - belief.right(0.01)[0])
    assert belief.beaten(0, [], 0.01) == 0


def early_looks(*, likeness: float, dice: np.random.Generator) -> tuple[Array, Array]:
    """(runs, worth): forty candidates seen early on, the best eight to the end on four seeds."""
    worth = dice.normal(0.5, 0.05, 40)
    early = likeness * worth + math.sqrt(1 - likeness**2) * dice.normal(0, 0.05, 40)
    values = np.stack([early, worth], axis=1)[:, None] + dice.normal(0, 0.01, (40, 4, 2))
    values[:, 1:] = np.where(
        np.isin(np.arange(40), np.argsort(-values[:, 0, 0])[:8])[:, None, None], values[:, 1:], np.nan
    )
    values[~np.isin(np.arange(40), np.argsort(-values[:, 0, 0])[:8]), 0, 1] = np.nan
    return values, worth


def test_an_early_look_that_says_nothing_leaves_more_doubt() -> None:
    """Of who was not gone on with; and a look that says all leaves none."""
    dice = np.random.default_rng(0)
    doubts = []
    for likeness in (0.99, 0.0):
        values, _ = early_looks(likeness=likeness, dice=dice)
        belief = believed(values, 0.01, [0])
        raced = ~np.isnan(values[:, 3, 1])
        choice = int(np.where(raced, belief.mean, -1).argmax())
        doubts.append(belief.beaten(choice, np.flatnonzero(~raced).tolist(), 0.01))
    assert doubts[0] < 0.5 * doubts[1]


def test_what_is_believed_of_whom_was_not_gone_on_with_is_as_wrong_as_it_says() -> None:
    """Over forty tables: the errors in units of the standard deviations that are believed."""
    errors = []
    for number in range(40):
        values, worth = early_looks(likeness=0.7, dice=np.random.default_rng(number))
        belief = believed(values, 0.01, [0])
        raced = ~np.isnan(values[:, 3, 1])
        off = belief.mean - worth - (belief.mean - worth)[raced].mean()
        errors.append(off[~raced] / belief.sd[~raced])
    assert 0.6 < float(np.concatenate(errors).std()) < 1.5


def test_one_that_fails_now_and_then_is_no_measure_of_the_others_noise() -> None:
    """With the failing one the two good ones are told apart as without."""
    dice = np.random.default_rng(4)
    good = np.asarray([[0.5], [0.53], [0.49], [0.5]]) + dice.normal(0, 0.01, (4, 6))
    failing = 0.5 + dice.normal(0, 0.01, (1, 6)) - np.asarray([[0, 0, 0.4, 0, 0, 0.4]])
    alone, beside = (believed(table(values), 0.01, [0]) for values in (good, np.concatenate([good, failing])))
    assert alone.right(0.01)[1] > 0.9
    assert beside.right(0.01)[1] > alone.right(0.01)[1] - 0.1


def test_a_look_is_what_says_most_for_its_cost() -> None:
    """Early on is as good as the end: one more seed for an eighth. It says nothing of it: on to the end."""
    looks = []
    for likeness in (1.0, 0.0):
        values, _ = early_looks(likeness=likeness, dice=np.random.default_rng(5))
        steps = (~np.isnan(values)).sum(axis=2)
        place = int(np.flatnonzero(steps[:, 1] == 0)[0])
        looks.append(believed(values, 0.01, [0]).look(place, steps[place], (0.125, 1.0)))
    assert looks[1] == (0, 2)
    assert looks[0] in ((1, 1), (0, 2))


def test_more_candidates_than_the_covariances_are_fitted_to_are_believed_all_the_same() -> None:
    count = MOST_FITTED + 100
    values = np.full((count, 3, 1), math.nan)
    values[:, 0, 0] = np.linspace(0.2, 0.6, count)
    values[-10:] = (np.linspace(0.59, 0.6, 10)[:, None] + np.random.default_rng(0).normal(0, 0.001, (10, 3)))[
        :, :, None
    ]
    belief = believed(values, 0.001, [0])
    assert len(belief.mean) == count
    assert belief.mean[0] < belief.mean[count // 2] < belief.mean[-1]
