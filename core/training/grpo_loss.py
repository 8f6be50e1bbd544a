"""The GRPO loss of one rollout, cut into micro-batches: policy surrogate, KL to the reference, entropy bonus.

A micro-batch divides by the denominators of the whole optimiser batch and not by its own, so the gradient does not
depend on how the batch is cut.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

import torch
from torch import Tensor

from core.algorithms.kl import k3, kl_loss
from core.algorithms.names import Reduction
from core.algorithms.reductions import token_weights, weighted_sum
from core.algorithms.surrogates import Trust, surrogate
from core.config import GrpoStage, Schedule
from core.models.devices import to_device
from core.policies.base import ENTROPY, Scores
from core.training.update import LossParts, add_own_losses, own_losses


@dataclass(frozen=True, kw_only=True, slots=True)
class Numbers:
    """The stage's numbers that may move from step to step, as they stand on this one."""

    epsilon: float
    epsilon_high: float
    policy_weight: float
    beta: float
    entropy_coef: float
    own_losses: Mapping[str, float]  # weights of the policy's own losses, those of weight 0 left out


def numbers(stage: GrpoStage, now: Callable[[Schedule], float], *, beta: float, entropy_coef: float) -> Numbers:
    """The numbers of a step where a schedule's value is `now(schedule)`; the two that rules may move are given."""
    return Numbers(
        epsilon=now(stage.epsilon),
        epsilon_high=now(stage.epsilon if stage.epsilon_high is None else stage.epsilon_high),
        policy_weight=now(stage.policy_weight),
        beta=beta,
        entropy_coef=entropy_coef,
        own_losses=own_losses(stage, now),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class GrpoLoss:
    """What the loss needs of the whole rollout, on the CPU whatever the policy runs on: N rows, T factors.

    `rows` are those of the optimiser batch (None: all). `advantages` is (N,), or (N, T) where the factors of a row
    differ. `old_NT` are the log-probs recorded while sampling (or scored before the update, then `importance_NT` says
    how far the sampler was from them). `reference_NT` is None where there is no KL. Of the stage only what never moves
    is read: the rest is in `numbers`.
    """

    stage: GrpoStage
    numbers: Numbers
    mask_NT: Tensor
    old_NT: Tensor
    advantages: Tensor
    reference_NT: Tensor | None = None
    importance_NT: Tensor | None = None
    rows: Sequence[int] | None = None

    @property
    def wants(self) -> frozenset[str]:
        """What the update's forward must give besides log-probs."""
        return frozenset(self.numbers.own_losses) | ({ENTROPY} if self.numbers.entropy_coef else set())

    def pulling(self, rows: Sequence[int]) -> list[int]:
        """Those of the rows whose gradient is not 0 by their numbers; one at least, where there are any.

        A row without an advantage pulls by no surrogate. Where a KL is measured, or a term other than the policy's is
        learned from, all rows count.
        """
        others = self.numbers.entropy_coef or self.numbers.own_losses or self.reference_NT is not None
        if others or not rows:
            return list(rows)
        learns_N = ((_columns(self.advantages) != 0) & self.mask_NT).any(-1).tolist()
        return [row for row in rows if learns_N[row]] or [rows[0]]

    def __call__(self, scores: Scores, rows: Sequence[int]) -> LossParts:
        """The rows' share of the batch loss and of its metrics; shares add up to the batch's."""
        index, stage, now, device = list(rows), self.stage, self.numbers, scores.logprobs_NT.device
        # Zeroed before any formula: under k2's square, 0 * NaN would carry a NaN of the padding into the gradient.
        outside_NT = to_device(~self.mask_NT[index], device)
        new_NT = scores.logprobs_NT.masked_fill(outside_NT, 0.0)
        old_NT = to_device(self.old_NT[index], device).masked_fill(outside_NT, 0.0)
        weights_NT = to_device(self._weights(index, stage.reduction), device)
        fraction_NT = to_device(self._weights(index, "token_mean"), device)
        ratios = surrogate(
            new_NT,
            old_NT,
            to_device(_columns(self.advantages)[index], device).to(new_NT.dtype),
            ~outside_NT,
            self._trust(),
        )
        values_NT = ratios.values_NT
        if self.importance_NT is not None:
            values_NT = values_NT * to_device(self.importance_NT[index], device).masked_fill(outside_NT, 1.0)
        policy = -weighted_sum(values_NT, weights_NT)
        terms = {"policy": now.policy_weight * policy}
        sums = {
            "policy/loss": policy.detach(),
            "policy/tokens": (~outside_NT).sum().double(),
            "policy/clip_low": weighted_sum(ratios.low_NT.double(), fraction_NT),
            "policy/clip_high": weighted_sum(ratios.high_NT.double(), fraction_NT),
        }
        maxima = {"policy/ratio_max": ratios.ratio_NT.masked_fill(outside_NT, 0.0).amax()}
        if self.reference_NT is not None:
            reference_NT = to_device(self.reference_NT[index], device).masked_fill(outside_NT, 0.0)
            sums["kl"] = weighted_sum(k3(new_NT.detach(), reference_NT), fraction_NT)
            match stage.kl_in:
                case "loss":
                    kl_NT = kl_loss(new_NT, reference_NT, stage.kl_estimator, old_NT=old_NT)
                    terms["kl"] = now.beta * weighted_sum(kl_NT, weights_NT)
                case "reward":  # it is in the advantages
                    pass
                case _:
                    assert_never(stage.kl_in)
        if now.entropy_coef and scores.entropies_NT is not None:
            entropies_NT = scores.entropies_NT.masked_fill(outside_NT, 0.0)
            terms["entropy"] = -now.entropy_coef * weighted_sum(entropies_NT, weights_NT)
        parts = LossParts(total=torch.stack(list(terms.values())).sum(), sums=sums, maxima=maxima, terms=terms)
        return add_own_losses(parts, scores, now.own_losses, len(self._batch()))

    def _batch(self) -> list[int]:
        return list(range(len(self.mask_NT))) if self.rows is None else list(self.rows)

    def _weights(self, index: list[int], reduction: Reduction) -> Tensor:
        """The weights of these rows' factors in the optimiser batch."""
        batch = self._batch()
        weights_NT = torch.zeros_like(self.mask_NT, dtype=torch.float64)
        weights_NT[batch] = token_weights(self.mask_NT[batch], reduction, self.stage.max_completion_length)
        return weights_NT[index]

    def _trust(self) -> Trust:
        stage = self.stage
        return Trust(
            kind=stage.surrogate,
            epsilon=self.numbers.epsilon,
            epsilon_high=self.numbers.epsilon_high,
            dual_clip=stage.dual_clip,
            cispo_max_weight=stage.cispo_max_weight,
            sapo_temperature_pos=stage.sapo_temperature_pos,
            sapo_temperature_neg=stage.sapo_temperature_neg,
            dppo_delta=stage.dppo_delta,
        )


def _columns(advantages: Tensor) -> Tensor:
    """(N,) or (N, T) -> (N, 1) or (N, T)."""
    return advantages.unsqueeze(-1) if advantages.dim() == 1 else advantages
