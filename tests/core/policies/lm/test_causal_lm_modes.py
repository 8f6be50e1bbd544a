"""The clean mode: what holds inside it, and that everything is found again as it was left."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch

from core.policies.lm.causal_lm import clean_mode, enable_checkpointing, update_mode
from tests.fakes import small_policy, small_qwen2


def checkpointing(model: Any) -> bool:
    return any(getattr(module, "gradient_checkpointing", False) for module in model.modules())


def mode_of(model: Any) -> tuple[bool, bool, bool]:
    return model.training, checkpointing(model), model.config.use_cache


STATES = list(product([False, True], repeat=3))


@pytest.fixture(scope="module", params=["plain", "lora"])
def model(request: pytest.FixtureRequest) -> Any:
    return small_qwen2() if request.param == "plain" else small_policy(lora_dropout=0.1).model


def put(model: Any, training: bool, checkpoint: bool, use_cache: bool) -> None:
    model.train(training)
    if checkpoint:
        enable_checkpointing(model)
    else:
        # Renamed in transformers 5.23; the old name warns.
        (getattr(model, "activation_checkpointing_disable", None) or model.gradient_checkpointing_disable)()
    model.config.use_cache = use_cache


@pytest.mark.parametrize("state", STATES)
def test_inside_it_is_clean_and_outside_as_before(model: Any, state: tuple[bool, bool, bool]) -> None:
    put(model, *state)
    assert mode_of(model) == state
    with clean_mode(model):
        assert mode_of(model) == (False, False, True)
        assert not torch.is_grad_enabled()
        assert not any(module.training for module in model.modules())
    assert mode_of(model) == state
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("state", STATES)
def test_an_error_inside_leaves_the_mode_as_before(model: Any, state: tuple[bool, bool, bool]) -> None:
    put(model, *state)
    with pytest.raises(ZeroDivisionError), clean_mode(model):
        raise ZeroDivisionError
    assert mode_of(model) == state
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("asked", [False, True])
def test_an_update_trains_and_checkpoints_as_asked(asked: bool) -> None:
    model = small_qwen2()
    for _ in range(2):  # and a second time: nothing changes
        update_mode(model, checkpointing=asked)
        assert (model.training, checkpointing(model)) == (True, asked)
