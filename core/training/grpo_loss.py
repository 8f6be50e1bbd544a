"""The GRPO loss of one rollout, cut into micro-batches: policy surrogate + beta * KL to the reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from core.algorithms.kl import k3, kl_loss
from core.algorithms.objectives import clipped_surrogate, token_weights, weighted_sum
from core.policies.base import Scores
from core.spec import GrpoStage
from core.training.update import LossParts


@dataclass(frozen=True, kw_only=True, slots=True)
class GrpoLoss:
    """What the loss needs of the whole optimiser batch: N rows, T factors.

    `mask_NT` is the whole batch's, so that a micro-batch divides by the batch's denominators and not by its own.
    `old_NT` are the log-probs recorded while sampling; `reference_NT` is None where beta is 0.
    """

    stage: GrpoStage
    mask_NT: Tensor
    old_NT: Tensor
    advantages_N: Tensor
    reference_NT: Tensor | None

    def __call__(self, scores: Scores, rows: Sequence[int]) -> LossParts:
        """The rows' share of the batch loss and of its metrics; shares add up to the batch's."""
        index, stage = list(rows), self.stage
        # Zeroed before any formula: under k2's square, 0 * NaN would carry a NaN of the padding into the gradient.
        outside_NT = ~self.mask_NT[index]
        new_NT = scores.logprobs_NT.masked_fill(outside_NT, 0.0)
        weights_NT = token_weights(self.mask_NT, stage.reduction)[index]
        fraction_NT = token_weights(self.mask_NT, "token_mean")[index]
        surrogate = clipped_surrogate(
            new_NT,
            self.old_NT[index].masked_fill(outside_NT, 0.0),
            self.advantages_N[index],
            epsilon=stage.epsilon,
            epsilon_high=stage.epsilon_high if stage.epsilon_high is not None else stage.epsilon,
        )
        policy = -weighted_sum(surrogate.values_NT, weights_NT)
        sums = {
            "policy/loss": policy.detach(),
            "policy/clip_low": weighted_sum(surrogate.low_NT.double(), fraction_NT),
            "policy/clip_high": weighted_sum(surrogate.high_NT.double(), fraction_NT),
        }
        maxima = {"policy/ratio_max": surrogate.ratio_NT.masked_fill(outside_NT, 0.0).amax()}
        if self.reference_NT is None:
            return LossParts(total=policy, sums=sums, maxima=maxima)
        reference_NT = self.reference_NT[index].masked_fill(outside_NT, 0.0)
        penalty = weighted_sum(kl_loss(new_NT, reference_NT, stage.kl_estimator), weights_NT)
        sums["kl"] = weighted_sum(k3(new_NT.detach(), reference_NT), fraction_NT)
        return LossParts(total=policy + stage.beta * penalty, sums=sums, maxima=maxima)
