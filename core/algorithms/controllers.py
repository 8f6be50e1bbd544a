"""Coefficients that follow a measurement: the KL weight and the entropy coefficient, one step at a time.

Pure: state in, state out. What is NOT here: what is measured, and where the state is saved.
"""

from __future__ import annotations


def proportional_beta(beta: float, kl: float, *, target: float, horizon: float, samples: int) -> float:
    """The next KL weight: beta * (1 + clip(kl / target - 1, -0.2, 0.2) * samples / horizon) (arXiv 1909.08593, 2.2).

    kl, target: nats. samples: completions since the last update, in the unit of horizon (10,000 there).
    """
    error = min(0.2, max(-0.2, kl / target - 1.0))
    return beta * (1.0 + error * samples / horizon)


def threshold_beta(beta: float, kl: float, *, high: float = 0.1, low: float = 0.01, factor: float = 1.5) -> float:
    """The next KL weight: beta * factor above `high` nats, beta / factor below `low`, else beta."""
    if kl > high:
        return beta * factor
    if kl < low:
        return beta / factor
    return beta


def adaptive_entropy_coef(
    coef: float, entropy: float, *, target: float, delta: float, low: float, high: float
) -> float:
    """The next entropy coefficient: + delta at or below the target entropy (nats), - delta above, within [low, high].

    Skywork-OR1 (arXiv 2505.22312, 4.2), as TRL 1.16 has it.
    """
    if entropy <= target:
        return max(low, min(coef + delta, high))
    return min(high, max(coef - delta, low))


def applied_entropy_coef(coef: float, entropy: float | None, *, target: float) -> float:
    """The coefficient that enters the loss: coef while the last step's entropy is at or below the target, else 0.

    entropy: nats per token of the step before; None where there was none: then 0, as TRL has it.
    """
    return coef if entropy is not None and entropy <= target else 0.0
