"""How many threads a model of a size gets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from core.models import devices
from core.models.catalogue import KNOWN, TINY, known_parameters


@pytest.fixture
def given_two() -> Iterator[None]:
    """A process that was given two threads, before its first model."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    devices.given_threads.cache_clear()
    yield
    torch.set_num_threads(before)
    devices.given_threads.cache_clear()


@pytest.mark.parametrize(
    ("parameters", "given", "expected"),
    [
        (215_424, 16, 1),  # builtin:tiny
        (4_999_999, 16, 1),
        (5_000_000, 16, 16),
        (134_515_008, 2, 2),  # SmolLM2-135M
        (134_515_008, 1, 1),  # never more than the process was given
    ],
)
def test_one_for_a_small_model_else_what_was_given(parameters: int, given: int, expected: int) -> None:
    assert devices.threads_for(parameters, given) == expected


@pytest.mark.usefixtures("given_two")
def test_a_large_model_after_a_small_one_gets_all_of_them_back() -> None:
    seen = []
    for parameters in (215_424, 134_515_008, 215_424):
        devices.set_threads(parameters)
        seen.append(torch.get_num_threads())
    assert seen == [1, 2, 1]


def test_the_models_of_profiles_are_known_before_they_are_loaded() -> None:
    assert known_parameters(TINY) == KNOWN[0].parameters < devices.SMALL
    assert known_parameters("somebody/else") is None
