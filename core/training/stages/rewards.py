"""Task rewards -> the rewards and advantages that a GRPO step learns from: shaping, KL, candidates, entropy weights."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import assert_never

import torch
from torch import Tensor

from core.algorithms.candidates import kept_counts, whole
from core.algorithms.entropy_weights import sequence_weights, token_weights
from core.algorithms.kl import kl_penalty
from core.algorithms.shaping import overlong_penalty
from core.config import GrpoStage
from core.policies.base import Rollout
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
    if keep is None:
        return rewards_PK
    kept_PK = torch.from_numpy(kept_counts(rewards_PK.numpy(), whole(here.now(keep))))
    return rewards_PK.masked_fill(kept_PK == 0, math.nan)


def token_advantages(here: Here, rollout: Rollout, advantages_PK: Tensor, signals: Signals) -> Tensor:
    """(N,), or (N, T) where each token's reward is weighted by its entropy."""
    stage: GrpoStage = here.stage
    advantages_N = advantages_PK.flatten()
    if signals.entropies_NT is None:
        return advantages_N
    entropies_NT, share = signals.entropies_NT.double(), stage.entropy_share
    match stage.entropy_weighting:
        case "none":
            return advantages_N
        case "token":
            weights_NT = token_weights(entropies_NT, rollout.mask_NT, advantages_PK, share=share)
            return advantages_N.unsqueeze(-1) * weights_NT
        case "sequence":
            return advantages_N * sequence_weights(entropies_NT, rollout.mask_NT, advantages_PK, share=share)
        case _:
            assert_never(stage.entropy_weighting)
