"""Estimators of KL(policy || reference) per drawn token, as values and as loss terms.

With d = log pi - log ref at a token drawn from pi (values: Schulman 2020; gradients: arXiv 2506.09477):

    k2 = d^2 / 2             biased as a value; as a loss its expected gradient IS that of the reverse KL(pi || ref)
    k3 = exp(-d) + d - 1     unbiased as a value; as a loss its expected gradient is that of the FORWARD KL(ref || pi)

So `k2` is the default in the loss, `k3` is what is reported. Both are 0 at d = 0.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

LossEstimator = Literal["k2", "k3"]


def k2(policy_NT: Tensor, reference_NT: Tensor) -> Tensor:
    """Half the squared log-ratio, per token: (N, T) log-probs -> (N, T) nats."""
    return (policy_NT - reference_NT.detach()).square() / 2


def k3(policy_NT: Tensor, reference_NT: Tensor) -> Tensor:
    """exp(-d) + d - 1, per token: (N, T) log-probs -> (N, T) nats, never negative.

    d is bounded at +-20 first: where the policy leaves tokens the reference likes, exp(-d) reached 6.8e9 in the wild.
    """
    d_NT = (policy_NT - reference_NT.detach()).clamp(-20.0, 20.0)
    return (-d_NT).expm1() + d_NT


def kl_loss(policy_NT: Tensor, reference_NT: Tensor, estimator: LossEstimator) -> Tensor:
    """The chosen estimator per token, to be minimised: (N, T) -> (N, T) nats."""
    return k2(policy_NT, reference_NT) if estimator == "k2" else k3(policy_NT, reference_NT)
