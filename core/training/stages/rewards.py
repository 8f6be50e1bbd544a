"""Task rewards -> the rewards and advantages that a GRPO step learns from: shaping, KL, candidates, entropy weights."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from core.algorithms.entropy_weights import sequence_weights, token_weights
from core.algorithms.kl import kl_penalty
from core.algorithms.shaping import overlong_penalty
from core.policies.base import Rollout
from core.spec import GrpoStage
from core.training.groups import Groups
from core.training.stages.base import Here


@dataclass(frozen=True, kw_only=True, slots=True)
class Signals:
    """What was scored before the rewards are put together: (N, T) each, None where nothing needs it."""

    beta: float = 0.0
    reference_NT: Tensor | None = None
    own_NT: Tensor | None = None  # the trainer's own log-probs before the update, not the sampler's
    entropies_NT: Tensor | None = None


def shaped_rewards(here: Here, groups: Groups, signals: Signals) -> Tensor:
    """(P, K) float64: the task's rewards less the overlong penalty and the KL, candidates that do not take part NaN."""
    stage: GrpoStage = here.stage
    rewards_PK, rollout = groups.rewards_PK, groups.rollout
    if stage.overlong is not None:
        buffer = max(1, math.ceil(round(stage.overlong.buffer * stage.max_completion_length, 6)))  # 0.07 * 100 is 7
        lengths_N = rollout.mask_NT.sum(-1)
        penalty_N = overlong_penalty(lengths_N, max_length=stage.max_completion_length, buffer=buffer)
        rewards_PK = rewards_PK + stage.overlong.weight * penalty_N.to(rewards_PK).view(rewards_PK.shape)
    if stage.kl_in == "reward" and signals.reference_NT is not None and signals.own_NT is not None:
        # Not the sampler's log-probs: their rounding against the reference's would be whitened into advantages of 1.5.
        kl_N = kl_penalty(signals.own_NT, signals.reference_NT, rollout.mask_NT, stage.kl_estimator)
        rewards_PK = rewards_PK - signals.beta * kl_N.to(rewards_PK).view(rewards_PK.shape)
    return kept_candidates(here, rewards_PK)


def kept_candidates(here: Here, rewards_PK: Tensor) -> Tensor:
    """The rewards of the candidates that take part on this step; the others are missing."""
    keep = getattr(here.stage, "keep_candidates", None)
    return rewards_PK if keep is None else _best(rewards_PK, max(1, round(here.now(keep))))


def token_advantages(here: Here, rollout: Rollout, advantages_PK: Tensor, signals: Signals) -> Tensor:
    """(N,), or (N, T) where each token's reward is weighted by its entropy."""
    stage: GrpoStage = here.stage
    advantages_N = advantages_PK.flatten()
    if signals.entropies_NT is None:
        return advantages_N
    weigh = token_weights if stage.entropy_weighting == "token" else sequence_weights
    entropies_NT = signals.entropies_NT.double()
    weights = weigh(entropies_NT, rollout.mask_NT, advantages_N.view(advantages_PK.shape), share=stage.entropy_share)
    return advantages_N.unsqueeze(-1) * weights if weights.dim() == 2 else advantages_N * weights


def _best(rewards_PK: Tensor, keep: int) -> Tensor:
    """The best `keep` of each group; the others are missing. Of equal rewards the earlier ones stay."""
    order_PK = rewards_PK.nan_to_num(-math.inf).argsort(dim=-1, descending=True, stable=True)
    kept_PK = torch.zeros_like(rewards_PK, dtype=torch.bool).scatter(-1, order_PK[:, :keep], True)
    return rewards_PK.masked_fill(~kept_PK, math.nan)
