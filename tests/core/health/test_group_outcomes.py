"""Groups out of samples, what chance gives, and how alike the completions of a prompt are: on paper."""

from __future__ import annotations

import random

import pytest

from core.health.case import Sample
from core.health.dataset import PassRates
from core.health.rules.groups import Group, dead_share, dealt, groups_of, level_shares, likeness_of


def group(*levels: float, step: int = 1) -> Group:
    return Group(step=step, levels=levels, texts=0)


def sample(step: int, of: str | None, reward: float | None, text: str | None = None) -> Sample:
    return Sample(step=step, group=of, reward=reward, text=text)


def test_groups_of_samples() -> None:
    samples = [
        *(sample(1, "a", reward, text) for reward, text in ((0.1 + 0.2, "x"), (0.3, "y"))),  # equal to nine digits
        *(sample(1, "b", reward, "z") for reward in (0.0, 1.0)),
        *(sample(2, "a", reward) for reward in (1.0, 1.0)),  # the prompt again: another group
        *(sample(2, "c", reward) for reward in (1.0, None)),  # a reward is missing
        *(sample(3, "d", reward) for reward in (1.0, 1.0, 1.0)),  # of another size
        sample(3, None, 1.0),
    ]
    found = groups_of(samples)
    assert [(one.step, one.levels, one.texts, one.dead) for one in found] == [
        (1, (0.3, 0.3), 2, True),
        (1, (0.0, 1.0), 1, False),
        (2, (1.0, 1.0), 0, True),
    ]
    assert level_shares(found) == {0.3: 2 / 6, 0.0: 1 / 6, 1.0: 3 / 6}
    assert groups_of([]) == []


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        # Two groups of two out of 1 1 0 0: C(2, 2) + C(2, 2) of the C(4, 2) = 6 pairs are equal.
        ([group(1, 1), group(0, 0)], 2 / 6),
        ([group(1, 0), group(1, 0)], 2 / 6),  # how they were dealt does not matter
        ([group(1, 1), group(1, 1)], 1.0),
        ([group(1, 1), group(1, 0)], 3 / 6),  # C(3, 2)
        ([group(1, 0.5), group(0.2, 0)], 0.0),
        ([group(1, 1)], 1.0),  # one group alone says nothing
    ],
)
def test_the_share_that_dealing_gives(groups: list[Group], expected: float) -> None:
    assert dealt(groups) == pytest.approx(expected)


def test_prompts_that_are_alike_have_as_many_as_dealing_gives() -> None:
    """Unbiased whatever the pass rate of a step: the mean of dead - dealt over steps is 0."""
    drawn, more = random.Random(0), []
    for _ in range(4000):
        rate = drawn.choice([0.1, 0.5, 0.9])  # steps differ, prompts of a step do not
        step = [group(*(float(drawn.random() < rate) for _ in range(4))) for _ in range(3)]
        more.append(sum(one.dead for one in step) / 3 - dealt(step))
    assert sum(more) / len(more) == pytest.approx(0.0, abs=0.012)  # sd 0.24 over sqrt(4000), three of them


@pytest.mark.parametrize(
    ("shares", "size", "likeness", "expected"),
    [
        ([0.5, 0.5], 2, 0.0, 0.5),  # p^2 + (1 - p)^2
        ([0.5, 0.5], 8, 0.0, 2 / 256),
        ([0.2, 0.3, 0.5], 2, 0.0, 0.04 + 0.09 + 0.25),
        ([0.5, 0.5], 2, 0.5, 0.75),  # the pair is of one mind half of the time: 0.5 + 0.5 x 0.5
        ([1.0], 8, 0.5, 1.0),
    ],
)
def test_dead_share(shares: list[float], size: int, likeness: float, expected: float) -> None:
    assert dead_share(shares, size, likeness) == pytest.approx(expected)


def test_of_two_levels_it_is_the_beta_law() -> None:
    assert dead_share([0.3, 0.7], 8, 0.4) == pytest.approx(PassRates(mean=0.3, correlation=0.4).dead(8))


def test_likeness_is_found_again() -> None:
    shares = [0.2, 0.3, 0.5]
    for likeness in (0.05, 0.4, 0.9):
        assert likeness_of(shares, 8, dead_share(shares, 8, likeness)) == pytest.approx(likeness, abs=1e-6)
    assert likeness_of(shares, 8, dead_share(shares, 8)) == 0.0
    assert likeness_of(shares, 8, 0.0) == 0.0  # fewer than chance gives
