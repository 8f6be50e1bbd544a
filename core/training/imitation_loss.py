"""Cross-entropy on given or chosen outputs: supervised learning, and reward-weighted (RCE)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from core.algorithms.names import Reduction
from core.algorithms.reductions import token_weights, weighted_sum
from core.models.devices import to_device
from core.policies.base import Scores
from core.training.update import LossParts, add_own_losses


@dataclass(frozen=True, kw_only=True, slots=True)
class ImitationLoss:
    """Minus the weighted log-probs of the rows, averaged over rows; of a row's factors the mean or the sum.

    `mask_NT` is the whole batch's, on the CPU as a rollout is; `weights_N` has mean 1 for plain cross-entropy (None:
    all 1). `scale` multiplies the gradient and not the metric; `name` is the metric's and the gradient share's. Sampled
    rows need `sequence_sum`: the mean's 1 / length would be a reward for ending early, whatever the weights say.
    """

    mask_NT: Tensor
    weights_N: Tensor | None = None
    scale: float = 1.0
    name: str = "supervised"
    reduction: Reduction = "sequence_mean"
    own_losses: Mapping[str, float] = field(default_factory=dict)  # weights of the policy's own losses

    @property
    def wants(self) -> frozenset[str]:
        """What the update's forward must give besides log-probs."""
        return frozenset(self.own_losses)

    def __call__(self, scores: Scores, rows: Sequence[int]) -> LossParts:
        """The rows' share of the batch loss."""
        index, device = list(rows), scores.logprobs_NT.device
        weights_NT = token_weights(self.mask_NT, self.reduction)
        if self.weights_N is not None:
            weights_NT = weights_NT * self.weights_N.to(weights_NT).unsqueeze(-1)
        logprobs_NT = scores.logprobs_NT.masked_fill(to_device(~self.mask_NT[index], device), 0.0)
        loss = -weighted_sum(logprobs_NT, to_device(weights_NT[index], device))
        parts = LossParts(
            total=self.scale * loss, sums={f"{self.name}/loss": loss.detach()}, terms={self.name: self.scale * loss}
        )
        return add_own_losses(parts, scores, self.own_losses, int(self.mask_NT.any(-1).sum()))
