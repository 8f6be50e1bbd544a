"""Estimators of KL(policy || reference) per drawn token, as values and as loss terms.

With d = log pi - log ref at a token drawn from pi (values: Schulman 2020; gradients: arXiv 2506.09477, DeepSeek-V3.2
arXiv 2512.02556):

| estimator | value                  | as a loss, its expected gradient is that of |
|-----------|------------------------|---------------------------------------------|
| k1        | d, unbiased            | nothing: 0                                  |
| k2        | d^2 / 2, biased        | the reverse KL(pi || ref)                   |
| k3        | exp(-d) + d - 1, unbi. | the FORWARD KL(ref || pi)                   |
| k1_ratio  | as k1                  | the reverse KL(pi || ref)                   |
| k3_ratio  | as k3                  | the reverse KL(pi || ref)                   |

For outputs drawn from the reference (stored ones), forward_k3 = r - 1 - log r with r = pi / ref of the whole output is
never negative and estimates KL(ref || pi), in value and in gradient.

So `k2` or a ratio is for the loss, `k1` for the reward, `k3` for the report. These are statements about one token: how
it changes the KL of later tokens is seen by a KL in the reward only. Shape suffixes: N rows, T factors.
"""

from __future__ import annotations

from typing import assert_never

import torch
from torch import Tensor

from core.algorithms.names import KlEstimator
from core.algorithms.reductions import masked_sum


def k1(policy_NT: Tensor, reference_NT: Tensor) -> Tensor:
    """The log-ratio d, per token: (N, T) log-probs -> (N, T) nats, of either sign."""
    return policy_NT - reference_NT.detach()


def k2(policy_NT: Tensor, reference_NT: Tensor) -> Tensor:
    """Half the squared log-ratio, per token: (N, T) log-probs -> (N, T) nats."""
    return (policy_NT - reference_NT.detach()).square() / 2


def k3(policy_NT: Tensor, reference_NT: Tensor) -> Tensor:
    """exp(-d) + d - 1, per token: (N, T) log-probs -> (N, T) nats, never negative.

    d is bounded at +-20 first: where the policy leaves tokens the reference likes, exp(-d) reached 6.8e9 in the wild.
    """
    d_NT = (policy_NT - reference_NT.detach()).clamp(-20.0, 20.0)
    return (-d_NT).expm1() + d_NT


def forward_k3(policy_NT: Tensor, reference_NT: Tensor) -> Tensor:
    """r - 1 - log r of each row, r = prod pi / ref over its factors: (N, T) log-probs, 0 off the mask -> (N, T) nats.

    A row's value stands at each of its factors, so that a mean over them is it.
    """
    log_ratio_N1 = (policy_NT - reference_NT.detach()).sum(-1, keepdim=True).clamp(-20.0, 20.0)
    return (log_ratio_N1.expm1() - log_ratio_N1).expand_as(policy_NT)


def _estimate(policy_NT: Tensor, reference_NT: Tensor, estimator: KlEstimator) -> Tensor:
    match estimator:
        case "k1" | "k1_ratio":
            return k1(policy_NT, reference_NT)
        case "k2":
            return k2(policy_NT, reference_NT)
        case "k3" | "k3_ratio":
            return k3(policy_NT, reference_NT)
        case "forward_k3":
            return forward_k3(policy_NT, reference_NT)
        case _:
            assert_never(estimator)


def kl_loss(policy_NT: Tensor, reference_NT: Tensor, estimator: KlEstimator, *, old_NT: Tensor | None = None) -> Tensor:
    """The chosen estimator per token, to be minimised: (N, T) -> (N, T) nats; the caller zeroes what is off the mask.

    *_ratio: rho * k with rho = pi / sg(pi), whose value is k. Where the tokens were drawn by an older policy, its
    log-probs old_NT make it rho = pi / old, which is what keeps value and gradient unbiased then (as TRL and NeMo do).
    """
    plain_NT = _estimate(policy_NT, reference_NT, estimator)
    match estimator:
        case "k1" | "k2" | "k3" | "forward_k3":
            return plain_NT
        case "k1_ratio" | "k3_ratio":
            drawn_NT = (policy_NT if old_NT is None else old_NT).detach()
            return (policy_NT - drawn_NT).clamp(-20.0, 20.0).exp() * plain_NT
        case _:
            assert_never(estimator)


def kl_value(policy_NT: Tensor, reference_NT: Tensor, estimator: KlEstimator) -> Tensor:
    """The estimate itself per token, without a gradient: (N, T) -> (N, T) nats."""
    return _estimate(policy_NT.detach(), reference_NT, estimator)


def kl_penalty(policy_NT: Tensor, reference_NT: Tensor, mask_NT: Tensor, estimator: KlEstimator = "k1") -> Tensor:
    """The estimate summed over each row's drawn tokens, for a KL in the reward (r - beta * this): (N, T) -> (N,) nats.

    Without a gradient; off the mask nothing matters, NaN included. Sum, since the KL of a sequence is one (PPO-RLHF,
    arXiv 1909.08593).
    """
    with torch.no_grad():
        return masked_sum(kl_value(policy_NT, reference_NT, estimator), mask_NT)
