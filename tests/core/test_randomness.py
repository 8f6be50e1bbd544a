"""Counter-based randomness: a key names its numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from core.randomness import DROPOUT, EVALUATE, INIT, ORDER, PREVIEW, TRAIN, RowKey, permutation, seeded, uniforms

KEY = RowKey(7, TRAIN, 3, 0, 11)
NEIGHBOURS = [KEY._replace(**{field: value}) for field in KEY._fields for value in (2, 2**33)]


def test_the_same_key_draws_the_same_numbers() -> None:
    assert torch.equal(uniforms([KEY], 50), uniforms([KEY], 50))


def test_keys_that_differ_in_one_component_draw_other_numbers() -> None:
    drawn = {tuple(row.tolist()) for row in uniforms([KEY, *NEIGHBOURS], 20)}
    assert len(drawn) == 1 + len(NEIGHBOURS)


def test_components_do_not_change_places() -> None:
    # A key is no sum and no bag: step 1 row 2 is not step 2 row 1.
    first, second = uniforms([RowKey(0, TRAIN, 1, 0, 2), RowKey(0, TRAIN, 2, 0, 1)], 20)
    assert not torch.equal(first, second)


def test_purposes_are_distinct() -> None:
    assert len({TRAIN, EVALUATE, INIT, DROPOUT, ORDER, PREVIEW}) == 6


def test_the_first_numbers_of_a_longer_draw_are_those_of_a_shorter_one() -> None:
    longer = uniforms([KEY, NEIGHBOURS[0]], 100)
    for count in (1, 2, 3, 7, 64, 99):
        assert torch.equal(uniforms([KEY, NEIGHBOURS[0]], count), longer[:, :count])


def test_a_row_does_not_depend_on_who_stands_beside_it() -> None:
    assert torch.equal(uniforms([*NEIGHBOURS, KEY], 10)[-1], uniforms([KEY], 10)[0])


def test_they_are_uniform_on_the_half_open_unit_interval() -> None:
    drawn = uniforms([KEY._replace(row=row) for row in range(400)], 50)
    assert drawn.dtype is torch.float64
    assert bool((drawn >= 0).all())
    assert bool((drawn < 1).all())
    # 20,000 draws: the mean's standard error is 0.2887 / sqrt(20,000) = 0.002.
    assert float(drawn.mean()) == pytest.approx(0.5, abs=0.01)
    assert float(drawn.std()) == pytest.approx(12**-0.5, abs=0.01)


def test_a_permutation_belongs_to_its_key() -> None:
    order = permutation(KEY, 30)
    assert sorted(order) == list(range(30))
    assert order == permutation(KEY, 30)
    assert order != permutation(KEY._replace(step=4), 30)
    assert permutation(KEY, 0) == []


def test_seeded_seeds_by_key_and_puts_the_global_generators_back() -> None:
    torch.manual_seed(5)
    np.random.seed(5)
    before, numpys = torch.get_rng_state(), np.random.get_state()[1].tolist()  # type: ignore[index]
    with seeded(KEY):
        first = torch.rand(4)
    with seeded(KEY):
        again = torch.rand(4)
    with seeded(NEIGHBOURS[0]):
        other = torch.rand(4)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    uniforms([KEY], 10)
    permutation(KEY, 10)
    assert torch.equal(torch.get_rng_state(), before)
    assert np.random.get_state()[1].tolist() == numpys  # type: ignore[index]


def test_seeded_puts_the_generator_back_after_an_error_too() -> None:
    before = torch.get_rng_state()
    with pytest.raises(RuntimeError, match="negative"), seeded(KEY):
        torch.rand(-1)
    assert torch.equal(torch.get_rng_state(), before)
