"""KL estimators: their values, and whose gradient they are, by enumerating a small vocabulary."""

from __future__ import annotations

from collections.abc import Callable
from math import exp, log

import pytest
import torch
from torch import Tensor

from core.algorithms.kl import k2, k3, kl_loss


@pytest.mark.parametrize(
    ("d", "expected_k2", "expected_k3"),
    [
        (0.0, 0.0, 0.0),
        (log(2), log(2) ** 2 / 2, 0.5 + log(2) - 1),  # 0.2402 and 0.1931
        (-log(2), log(2) ** 2 / 2, 2 - log(2) - 1),  # 0.2402 and 0.3069
        (1.0, 0.5, exp(-1)),
        (-1.0, 0.5, exp(1) - 2),
        # k3 bounds d at +-20: exp(20) - 21, not exp(1000); above, d alone.
        (-1000.0, 500_000.0, exp(20) - 21),
        (1000.0, 500_000.0, exp(-20) + 19),
    ],
)
def test_values(d: float, expected_k2: float, expected_k3: float) -> None:
    policy, reference = torch.tensor([[d - 3.0]], dtype=torch.float64), torch.tensor([[-3.0]], dtype=torch.float64)
    assert k2(policy, reference).item() == pytest.approx(expected_k2)
    assert k3(policy, reference).item() == pytest.approx(expected_k3)
    assert kl_loss(policy, reference, "k2").item() == pytest.approx(expected_k2)
    assert kl_loss(policy, reference, "k3").item() == pytest.approx(expected_k3)


def test_a_small_difference_is_not_lost_in_rounding() -> None:
    # k3 = d^2/2 - d^3/6 + ... : 5e-9 at d = 1e-4; exp(-d) - 1 + d in fp32 would give 0 or 6e-8.
    assert k3(torch.tensor([1e-4]), torch.tensor([0.0])).item() == pytest.approx(5e-9, rel=0.01)


POLICY = torch.tensor([0.3, -1.0, 2.0, 0.0, 0.5], dtype=torch.float64)
REFERENCE = torch.tensor([1.0, 0.5, -0.5, 0.2, 0.0], dtype=torch.float64).log_softmax(-1)


def divergence(p: Tensor, q: Tensor) -> Tensor:
    """KL(p || q) of two rows of log-probs, summed over the whole vocabulary."""
    return (p.exp() * (p - q)).sum()


def reverse(logprobs: Tensor) -> Tensor:
    return divergence(logprobs, REFERENCE)


def forward(logprobs: Tensor) -> Tensor:
    return divergence(REFERENCE, logprobs)


def expected_under_the_policy(estimator: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """The estimator's mean over tokens drawn from the policy; which tokens are drawn carries no gradient."""
    return lambda logprobs: (logprobs.detach().exp() * estimator(logprobs, REFERENCE)).sum()


def gradient(of: Callable[[Tensor], Tensor]) -> Tensor:
    logits = POLICY.clone().requires_grad_()
    of(logits.log_softmax(-1)).backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    return logits.grad


def test_as_a_loss_k2_is_the_reverse_divergence_and_k3_the_forward_one() -> None:
    of_k2, of_k3 = gradient(expected_under_the_policy(k2)), gradient(expected_under_the_policy(k3))
    assert torch.allclose(of_k2, gradient(reverse), atol=1e-12)
    assert torch.allclose(of_k3, gradient(forward), atol=1e-12)
    assert (of_k2 - of_k3).abs().max() > 0.1  # the two are told apart by this example


def test_as_a_value_k3_is_unbiased_and_k2_is_not() -> None:
    logprobs = POLICY.log_softmax(-1)
    true = reverse(logprobs).item()
    assert expected_under_the_policy(k3)(logprobs).item() == pytest.approx(true, abs=1e-12)
    assert abs(expected_under_the_policy(k2)(logprobs).item() - true) > 0.01


def test_k3_is_never_negative() -> None:
    d = torch.linspace(-30, 30, 10_001)
    assert (k3(d, torch.zeros_like(d)) >= 0).all()


@pytest.mark.parametrize("estimator", [k2, k3])
def test_the_reference_has_no_gradient(estimator: Callable[[Tensor, Tensor], Tensor]) -> None:
    policy, reference = torch.tensor([1.0], requires_grad=True), torch.tensor([0.5], requires_grad=True)
    estimator(policy, reference).sum().backward()  # type: ignore[no-untyped-call]
    assert policy.grad is not None
    assert policy.grad.item() > 0  # above the reference: the loss pushes down
    assert reference.grad is None
