"""Policy surrogates: one value per token whose gradient is the policy's, to be MAXIMISED (a loss uses the negative).

One function per kind, all of the same form, and `surrogate` that chooses among them. rho = exp(new - old), A the
advantage, sg stop-gradient. What is NOT here: how tokens become one number (`reductions`), KL and entropy.

Also here: `truncated_weights`, for a sampler whose log-probs differ from the trainer's. They correct old / drawn, one
policy in two numerics; the surrogate's ratio is new / old. Where the surrogate takes the sampler's log-probs as old,
that ratio already corrects, and these weights would do it twice.
Shape suffixes: N rows, T factors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

import torch
from torch import Tensor

from core.algorithms.names import SurrogateKind
from core.algorithms.reductions import row_mean

LOG_RATIO_BOUND = 20.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Trust:
    """The kind of surrogate and its constants; each kind reads its own and ignores the others.

    epsilon, epsilon_high: the ratio's bounds 1 - epsilon and 1 + epsilon_high (clip, dual_clip, gspo, mean_ratio,
        product_ratio).
    dual_clip: the bound c > 1 on rho where A < 0. cispo_max_weight: an ABSOLUTE bound on rho, not 1 + something.
    sapo_temperature_*: steepness for A > 0 and for the rest. dppo_delta: the largest move of a token's probability.
    """

    kind: SurrogateKind
    epsilon: float
    epsilon_high: float
    dual_clip: float = 3.0
    cispo_max_weight: float = 5.0
    sapo_temperature_pos: float = 1.0
    sapo_temperature_neg: float = 1.05
    dppo_delta: float = 0.2


@dataclass(frozen=True, kw_only=True, slots=True)
class Surrogate:
    """A surrogate per factor, its ratio (detached), and where a bound takes its gradient away or cuts its weight.

    `low_NT`: because the ratio is too small (A < 0). `high_NT`: because it is too large. Both False off the mask.
    """

    values_NT: Tensor
    ratio_NT: Tensor
    low_NT: Tensor
    high_NT: Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class _Batch:
    """The inputs of one kind: 0 off the mask, so that nothing there can reach a value or a gradient."""

    new_NT: Tensor
    old_NT: Tensor
    advantages_NT: Tensor
    mask_NT: Tensor
    ratio_NT: Tensor  # carries the gradient


def surrogate(new_NT: Tensor, old_NT: Tensor, advantages: Tensor, mask_NT: Tensor, trust: Trust) -> Surrogate:
    """The surrogate `trust` names, per factor: log-probs (N, T), advantages (N, 1) or (N, T), mask (N, T) -> (N, T).

    Only new_NT carries a gradient. Off the mask everything is 0 (the ratio 1), whatever stood there, NaN included.
    """
    outside_NT = ~mask_NT
    new_NT = new_NT.masked_fill(outside_NT, 0.0)
    old_NT = old_NT.detach().to(new_NT.dtype).masked_fill(outside_NT, 0.0)
    advantages_NT = advantages.detach().to(new_NT.dtype).expand_as(new_NT).masked_fill(outside_NT, 0.0)
    # The log-ratio is bounded before exp so that one wild token gives a large number, not inf * 0 = NaN.
    ratio_NT = (new_NT - old_NT).clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND).exp()
    batch = _Batch(new_NT=new_NT, old_NT=old_NT, advantages_NT=advantages_NT, mask_NT=mask_NT, ratio_NT=ratio_NT)
    formula: Callable[[_Batch, Trust], Surrogate]
    match trust.kind:
        case "clip":
            formula = _clip
        case "dual_clip":
            formula = _dual_clip
        case "gspo":
            formula = _gspo
        case "mean_ratio":
            formula = _mean_ratio
        case "cispo":
            formula = _cispo
        case "sapo":
            formula = _sapo
        case "reinforce":
            formula = _reinforce
        case "dppo":
            formula = _dppo
        case "product_ratio":
            formula = _product_ratio
        case _:
            assert_never(trust.kind)
    return formula(batch, trust)


def _clip(batch: _Batch, trust: Trust) -> Surrogate:
    """min(rho A, clip(rho, 1 - epsilon, 1 + epsilon_high) A).

    PPO (arXiv 1707.06347, eq. 7) with the separate upper bound of DAPO (arXiv 2503.14476).
    """
    return _clipped(batch, batch.ratio_NT, trust)


def _dual_clip(batch: _Batch, trust: Trust) -> Surrogate:
    """As clip; where A < 0 not below c A, so that a huge ratio cannot give a huge gradient (arXiv 1912.09729)."""
    plain, a_NT = _clip(batch, trust), batch.advantages_NT
    return Surrogate(
        values_NT=torch.where(a_NT < 0, torch.maximum(plain.values_NT, trust.dual_clip * a_NT), plain.values_NT),
        ratio_NT=plain.ratio_NT,
        low_NT=plain.low_NT,
        high_NT=plain.high_NT | ((plain.ratio_NT > trust.dual_clip) & (a_NT < 0)),
    )


def _gspo(batch: _Batch, trust: Trust) -> Surrogate:
    """As clip, with the row's ratio s = exp(mean over drawn tokens of log rho) in place of rho (arXiv 2507.18071).

    Each token carries sg(s) * exp(new - sg new): value s, gradient s * grad new, so that under sequence_mean the sum
    is the gradient of s itself (GSPO-token, eq. 14 there).
    """
    mean_N = row_mean(batch.ratio_NT.detach().log(), batch.mask_NT)
    carrier_NT = (batch.new_NT - batch.new_NT.detach()).exp()
    return _clipped(batch, mean_N.exp().unsqueeze(-1) * carrier_NT, trust)


def _mean_ratio(batch: _Batch, trust: Trust) -> Surrogate:
    """Rows clipped whole by w = mean over drawn tokens of rho; the others rho A (GRPO-S, arXiv 2508.04349).

    Under sequence_mean a row gives min(w A, clip(w) A), in value and in gradient.
    """
    row_N1 = row_mean(batch.ratio_NT.detach(), batch.mask_NT).unsqueeze(-1)
    row = _clipped(batch, row_N1.expand_as(batch.new_NT), trust)
    return Surrogate(
        values_NT=torch.where(row.low_NT | row.high_NT, row.values_NT, batch.ratio_NT * batch.advantages_NT),
        ratio_NT=row.ratio_NT,
        low_NT=row.low_NT,
        high_NT=row.high_NT,
    )


def _cispo(batch: _Batch, trust: Trust) -> Surrogate:
    """sg(min(rho, cispo_max_weight)) A new: no token loses its gradient, its weight is bounded (arXiv 2506.13585)."""
    ratio_NT = batch.ratio_NT.detach()
    weight_NT = ratio_NT.clamp(max=trust.cispo_max_weight)
    return _record(
        weight_NT * batch.advantages_NT * batch.new_NT,
        ratio_NT,
        high_NT=(ratio_NT > trust.cispo_max_weight) & (batch.advantages_NT != 0),
    )


def _sapo(batch: _Batch, trust: Trust) -> Surrogate:
    """sigmoid(tau (rho - 1)) * 4 / tau * A, tau by the sign of A: a gate that closes softly (arXiv 2511.20347).

    Its slope in rho at rho = 1 is A, that of rho A.
    """
    tau_NT = torch.full_like(batch.new_NT, trust.sapo_temperature_neg)
    tau_NT = tau_NT.masked_fill(batch.advantages_NT > 0, trust.sapo_temperature_pos)
    gate_NT = (tau_NT * (batch.ratio_NT - 1.0)).sigmoid() * 4.0 / tau_NT
    return _record(gate_NT * batch.advantages_NT, batch.ratio_NT)


def _reinforce(batch: _Batch, _trust: Trust) -> Surrogate:
    """A new, without a ratio: right on-policy only (Williams 1992)."""
    return _record(batch.advantages_NT * batch.new_NT, batch.ratio_NT)


def _dppo(batch: _Batch, trust: Trust) -> Surrogate:
    """rho A, but 0 where the token's PROBABILITY has moved by more than delta the way A pushes (arXiv 2602.04879)."""
    moved_NT = batch.new_NT.detach().exp() - batch.old_NT.exp()
    high_NT = (batch.advantages_NT > 0) & (moved_NT > trust.dppo_delta)
    low_NT = (batch.advantages_NT < 0) & (-moved_NT > trust.dppo_delta)
    values_NT = (batch.ratio_NT * batch.advantages_NT).masked_fill(high_NT | low_NT, 0.0)
    return _record(values_NT, batch.ratio_NT, low_NT=low_NT, high_NT=high_NT)


def _product_ratio(batch: _Batch, trust: Trust) -> Surrogate:
    """As clip, with the whole row's ratio, the product of its factors' ratios, in place of rho (PPO on whole outputs).

    Each of a row's T factors carries its value and T times its own slope, so that under sequence_mean a row gives
    min(rho A, clip(rho) A), in value and in gradient.
    """
    log_N1 = (batch.new_NT - batch.old_NT).detach().sum(-1, keepdim=True)  # 0 off the mask
    whole_N1 = log_N1.clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND).exp()
    carrier_NT = (batch.mask_NT.sum(-1, keepdim=True) * (batch.new_NT - batch.new_NT.detach())).exp()
    return _clipped(batch, torch.where(batch.mask_NT, whole_N1 * carrier_NT, 1.0), trust)


def _clipped(batch: _Batch, ratio_NT: Tensor, trust: Trust) -> Surrogate:
    low, high, a_NT = 1.0 - trust.epsilon, 1.0 + trust.epsilon_high, batch.advantages_NT
    return _record(
        torch.minimum(ratio_NT * a_NT, ratio_NT.clamp(low, high) * a_NT),
        ratio_NT,
        low_NT=(ratio_NT < low) & (a_NT < 0),
        high_NT=(ratio_NT > high) & (a_NT > 0),
    )


def _record(
    values_NT: Tensor, ratio_NT: Tensor, *, low_NT: Tensor | None = None, high_NT: Tensor | None = None
) -> Surrogate:
    nowhere_NT = torch.zeros_like(ratio_NT, dtype=torch.bool)
    return Surrogate(
        values_NT=values_NT,
        ratio_NT=ratio_NT.detach(),
        low_NT=nowhere_NT if low_NT is None else low_NT,
        high_NT=nowhere_NT if high_NT is None else high_NT,
    )


def truncated_weights(old_NT: Tensor, drawn_NT: Tensor, cap: float, *, mask_NT: Tensor | None = None) -> Tensor:
    """min(exp(old - drawn), cap) per token, without a gradient: log-probs (N, T) -> (N, T).

    Truncated importance sampling (Ionides 2008; for samplers: arXiv 2510.26788). Given the mask, 1 off it whatever
    stands there, so that multiplying with a weight cannot carry a NaN of the padding.
    """
    gap_NT = (old_NT - drawn_NT).detach()
    if mask_NT is not None:
        gap_NT = gap_NT.masked_fill(~mask_NT, 0.0)
    weights_NT = gap_NT.clamp(max=20.0).exp().clamp(max=cap)
    return weights_NT if mask_NT is None else torch.where(mask_NT, weights_NT, 1.0)
