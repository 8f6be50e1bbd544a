"""KL estimators: their values, and whose gradient they are, by enumerating a small vocabulary."""

from __future__ import annotations

from collections.abc import Callable
from math import exp, log, nan
from typing import get_args

import pytest
import torch
from torch import Tensor

from core.algorithms.kl import forward_k3, k1, k2, k3, kl_loss, kl_penalty, kl_value
from core.algorithms.names import KlEstimator

ESTIMATORS: tuple[KlEstimator, ...] = get_args(KlEstimator)


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
    expected = {"k1": d, "k2": expected_k2, "k3": expected_k3, "k1_ratio": d, "k3_ratio": expected_k3}
    bounded = max(-20.0, min(20.0, d))
    expected["forward_k3"] = exp(bounded) - 1 - bounded  # the other way round
    for estimator in ESTIMATORS:  # as a loss a ratio of 1 changes no value
        assert kl_loss(policy, reference, estimator).item() == pytest.approx(expected[estimator])
        assert kl_value(policy, reference, estimator).item() == pytest.approx(expected[estimator])


def test_a_small_difference_is_not_lost_in_rounding() -> None:
    # k3 = d^2/2 - d^3/6 + ... : 5e-9 at d = 1e-4; exp(-d) - 1 + d in fp32 would give 0 or 6e-8.
    assert k3(torch.tensor([1e-4]), torch.tensor([0.0])).item() == pytest.approx(5e-9, rel=0.01)


POLICY = torch.tensor([0.3, -1.0, 2.0, 0.0, 0.5], dtype=torch.float64)
REFERENCE = torch.tensor([1.0, 0.5, -0.5, 0.2, 0.0], dtype=torch.float64).log_softmax(-1)
OLDER = torch.tensor([0.0, 0.4, 1.0, -0.6, 0.9], dtype=torch.float64).log_softmax(-1)


def divergence(p: Tensor, q: Tensor) -> Tensor:
    """KL(p || q) of two rows of log-probs, summed over the whole vocabulary."""
    return (p.exp() * (p - q)).sum()


def reverse(logprobs: Tensor) -> Tensor:
    return divergence(logprobs, REFERENCE)


def forward(logprobs: Tensor) -> Tensor:
    return divergence(REFERENCE, logprobs)


def expected(estimator: KlEstimator, *, drawn_from: Tensor | None = None) -> Callable[[Tensor], Tensor]:
    """The loss term's mean over tokens drawn from the policy, or from an older one whose log-probs it is then told.

    Which tokens are drawn carries no gradient.
    """

    def mean(logprobs: Tensor) -> Tensor:
        drawn = logprobs.detach() if drawn_from is None else drawn_from
        return (drawn.exp() * kl_loss(logprobs, REFERENCE, estimator, old_NT=drawn_from)).sum()

    return mean


def gradient(of: Callable[[Tensor], Tensor]) -> Tensor:
    """With respect to the policy's logits."""
    logits = POLICY.clone().requires_grad_()
    of(logits.log_softmax(-1)).backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    return logits.grad


@pytest.mark.parametrize(
    ("estimator", "whose"),
    [
        ("k1", lambda logprobs: 0.0 * logprobs.sum()),
        ("k2", reverse),
        ("k3", forward),
        ("k1_ratio", reverse),
        ("k3_ratio", reverse),
    ],
)
def test_expected_gradient_as_a_loss(estimator: KlEstimator, whose: Callable[[Tensor], Tensor]) -> None:
    assert torch.allclose(gradient(expected(estimator)), gradient(whose), atol=1e-12)


def test_the_example_tells_the_three_gradients_apart() -> None:
    assert (gradient(reverse) - gradient(forward)).abs().max() > 0.1
    assert (gradient(reverse) + gradient(forward)).abs().max() > 0.1
    assert min(gradient(reverse).abs().max(), gradient(forward).abs().max()) > 0.1


@pytest.mark.parametrize("estimator", ["k1_ratio", "k3_ratio"])
def test_told_the_older_policy_a_ratio_stays_unbiased_off_policy(estimator: KlEstimator) -> None:
    of = expected(estimator, drawn_from=OLDER)
    assert of(POLICY.log_softmax(-1)).item() == pytest.approx(reverse(POLICY.log_softmax(-1)).item(), abs=1e-12)
    assert torch.allclose(gradient(of), gradient(reverse), atol=1e-12)
    untold = gradient(lambda logprobs: (OLDER.exp() * kl_loss(logprobs, REFERENCE, estimator)).sum())
    assert (untold - gradient(reverse)).abs().max() > 0.01


@pytest.mark.parametrize("estimator", [name for name in ESTIMATORS if name != "forward_k3"])  # of other samples
def test_expected_value(estimator: KlEstimator) -> None:
    logprobs = POLICY.log_softmax(-1)
    mean = (logprobs.exp() * kl_value(logprobs, REFERENCE, estimator)).sum().item()
    true = reverse(logprobs).item()
    if estimator == "k2":
        assert abs(mean - true) > 0.01  # biased
    else:
        assert mean == pytest.approx(true, abs=1e-12)


def test_forward_k3_is_of_whole_outputs_that_the_reference_drew() -> None:
    policy, reference = torch.tensor([[-1.0, -2.0], [-1.0, 0.0]]), torch.tensor([[-1.5, -2.5], [-2.0, 0.0]])
    # Both rows' log-ratios add up to 1: e - 2, at each factor, so that a mean over them is it.
    assert forward_k3(policy, reference).tolist() == [pytest.approx([exp(1) - 2] * 2)] * 2
    logprobs = POLICY.log_softmax(-1).unsqueeze(-1).requires_grad_()
    outputs = REFERENCE.unsqueeze(-1)  # an output of one factor each
    mean = (outputs.exp() * forward_k3(logprobs, outputs)).sum()
    forward = (outputs.exp() * (outputs - logprobs)).sum()  # KL(ref || pi)
    assert mean.item() == pytest.approx(forward.item(), abs=1e-12)


def test_k3_is_never_negative() -> None:
    d = torch.linspace(-30, 30, 10_001)
    assert (k3(d, torch.zeros_like(d)) >= 0).all()


@pytest.mark.parametrize("estimator", [k1, k2, k3])
def test_the_reference_has_no_gradient(estimator: Callable[[Tensor, Tensor], Tensor]) -> None:
    policy, reference = torch.tensor([1.0], requires_grad=True), torch.tensor([0.5], requires_grad=True)
    estimator(policy, reference).sum().backward()  # type: ignore[no-untyped-call]
    assert policy.grad is not None
    assert policy.grad.item() > 0  # above the reference: the loss pushes down
    assert reference.grad is None


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_value_has_no_gradient(estimator: KlEstimator) -> None:
    assert not kl_value(torch.tensor([1.0], requires_grad=True), torch.tensor([0.5]), estimator).requires_grad


@pytest.mark.parametrize(
    ("estimator", "expected"),
    [
        # d: 1 and -0.5, and 2. k1: 0.5 and 2; k2: 0.5 + 0.125, 2; k3: e^-1 + (e^0.5 - 1.5), e^-2 + 1.
        ("k1", [0.5, 2.0]),
        ("k2", [0.625, 2.0]),
        ("k3", [exp(-1) + exp(0.5) - 1.5, exp(-2) + 1]),
    ],
)
def test_penalty_of_a_row(estimator: KlEstimator, expected: list[float]) -> None:
    policy = torch.tensor([[-1.0, -2.0], [-1.0, nan]], dtype=torch.float64, requires_grad=True)
    reference = torch.tensor([[-2.0, -1.5], [-3.0, nan]], dtype=torch.float64)
    got = kl_penalty(policy, reference, ~policy.isnan(), estimator)
    assert got.tolist() == pytest.approx(expected)
    assert not got.requires_grad
