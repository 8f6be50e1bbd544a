"""The optimiser that a stage names: its numbers by hand, its state out and in again, its settings refused elsewhere."""

from __future__ import annotations

from typing import get_args

import pytest
import torch
from pydantic import ValidationError

from core.algorithms.names import OPTIMISERS, Optimiser
from core.errors import SpecError
from core.policies.registry import check_optimisers
from core.randomness import RowKey
from core.training.update import LossParts, Update
from tests.core.training.test_update import Loss, rollout_of
from tests.fakes import TabularPolicy, batch_of, grpo_stage

KEY = RowKey(0, 3, 1, 0, 0)
OF_TORCH = [name for name in get_args(Optimiser) if not OPTIMISERS[name].eight_bit]
EIGHT_BIT = [name for name in get_args(Optimiser) if OPTIMISERS[name].eight_bit]


def pulled(policy: TabularPolicy, slopes: list[float]) -> Loss:
    """A loss whose gradient is these numbers, whatever the logits are."""
    return lambda scores, rows: LossParts(total=policy.logits @ torch.tensor(slopes))


def steps(update: Update, policy: TabularPolicy, gradients: list[list[float]]) -> None:
    rollout = rollout_of(policy)
    for slopes in gradients:
        update.apply([batch_of(rollout, pulled(policy, slopes), 6)], learning_rate=0.1, key=KEY)


def adamw_by_hand(gradients: list[float], *, beta1: float, beta2: float, epsilon: float) -> float:
    """Where a weight at 0 ends (Kingma and Ba 2015, algorithm 1), at a rate of 0.1."""
    weight, mean, square = 0.0, 0.0, 0.0
    for count, gradient in enumerate(gradients, start=1):
        mean = beta1 * mean + (1 - beta1) * gradient
        square = beta2 * square + (1 - beta2) * gradient**2
        weight -= 0.1 * mean / (1 - beta1**count) / ((square / (1 - beta2**count)) ** 0.5 + epsilon)
    return weight


@pytest.mark.parametrize("optim", ["adamw_torch", "adamw_torch_fused", "adam"])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"adam_beta1": 0.5},
        {"adam_beta2": 0.9},
        {"adam_epsilon": 0.3},
        {"adam_beta1": 0.0, "adam_beta2": 0.5, "adam_epsilon": 1.0},
    ],
)
def test_betas_and_epsilon_are_adams(optim: str, settings: dict[str, float]) -> None:
    policy = TabularPolicy(2)
    with torch.no_grad():
        policy.logits.zero_()
    stage = grpo_stage(optim=optim, max_grad_norm=100.0, **settings)
    steps(Update(policy, stage), policy, [[3.0, 1.0], [-1.0, 1.0], [0.5, -2.0]])
    how = {"beta1": stage.adam_beta1, "beta2": stage.adam_beta2, "epsilon": stage.adam_epsilon}
    expected = [adamw_by_hand(own, **how) for own in ([3.0, -1.0, 0.5], [1.0, 1.0, -2.0])]
    assert policy.logits.tolist() == pytest.approx(expected, rel=1e-5)


def test_plain_gradient_descent_moves_by_rate_times_gradient() -> None:
    policy = TabularPolicy(2)
    with torch.no_grad():
        policy.logits.zero_()
    steps(Update(policy, grpo_stage(optim="sgd", max_grad_norm=100.0)), policy, [[3.0, -1.0], [1.0, -1.0]])
    assert policy.logits.tolist() == pytest.approx([-0.4, 0.2])


def resumes_exactly(optim: str, size: int = 2) -> None:
    gradients = [[3.0, -1.0], [0.5, 2.0], [-1.0, 0.25], [0.1, 0.2]]
    gradients = [slopes * (size // 2) for slopes in gradients]
    whole, policy = TabularPolicy(size), TabularPolicy(size)
    steps(Update(whole, grpo_stage(optim=optim)), whole, gradients)
    first = Update(policy, grpo_stage(optim=optim))
    steps(first, policy, gradients[:2])
    second = Update(policy, grpo_stage(optim=optim))
    second.load(first.state())
    assert {name: value.tolist() for name, value in second.state().items()} == {
        name: value.tolist() for name, value in first.state().items()
    }
    steps(second, policy, gradients[2:])
    assert torch.equal(policy.logits, whole.logits)


@pytest.mark.parametrize("optim", OF_TORCH)
def test_each_goes_on_from_its_state_to_the_bit(optim: str) -> None:
    resumes_exactly(optim)


@pytest.mark.parametrize("optim", EIGHT_BIT)
def test_eight_bits_are_bitsandbytes(optim: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.policies.registry.has_bitsandbytes", lambda: False)
    check_optimisers({"warm": grpo_stage()})
    with pytest.raises(SpecError, match=f"{optim}.*bitsandbytes.*adamw_torch") as refused:
        check_optimisers({"warm": grpo_stage(), "last": grpo_stage(optim=optim)})
    assert refused.value.key == "stages.last.optim"


@pytest.mark.parametrize("optim", EIGHT_BIT)
def test_eight_bits_go_on_to_the_bit_where_bitsandbytes_is_there(optim: str) -> None:
    pytest.importorskip("bitsandbytes")
    if optim.startswith("paged") and not torch.cuda.is_available():
        pytest.skip("pages are of a CUDA device")
    resumes_exactly(optim, size=4096)  # of fewer weights it keeps moments in 32 bits


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"optim": "sgd", "adam_beta1": 0.8}, "adam_beta1"),
        ({"optim": "rmsprop", "adam_beta2": 0.8}, "adam_beta2"),
        ({"optim": "lion_8bit", "adam_epsilon": 1e-6}, "adam_epsilon"),
        ({"optim": "rprop", "weight_decay": 0.1}, "weight_decay"),
    ],
)
def test_what_an_optimiser_does_not_read_is_refused(settings: dict[str, object], key: str) -> None:
    with pytest.raises(ValidationError) as refused:
        grpo_stage(**settings)
    assert refused.value.errors()[0]["ctx"]["key"] == key
    assert str(settings["optim"]) in str(refused.value)
