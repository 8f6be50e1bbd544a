"""Cross-entropy on given or chosen outputs: supervised learning, and reward-weighted (RCE)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from core.algorithms.reductions import token_weights, weighted_sum
from core.policies.base import Scores
from core.training.update import LossParts


@dataclass(frozen=True, kw_only=True, slots=True)
class ImitationLoss:
    """-sum over rows of row_weight * mean log-prob of the row's factors, the row weights as a share of `rows`.

    `mask_NT` is the whole batch's; `weights_N` has mean 1 for plain cross-entropy (None: all 1). `scale` multiplies the
    gradient and not the metric; `name` is the metric's and the gradient share's.
    """

    mask_NT: Tensor
    weights_N: Tensor | None = None
    scale: float = 1.0
    name: str = "supervised"

    def __call__(self, scores: Scores, rows: Sequence[int]) -> LossParts:
        """The rows' share of the batch loss."""
        index = list(rows)
        weights_NT = token_weights(self.mask_NT, "sequence_mean")
        if self.weights_N is not None:
            weights_NT = weights_NT * self.weights_N.to(weights_NT).unsqueeze(-1)
        logprobs_NT = scores.logprobs_NT.masked_fill(~self.mask_NT[index], 0.0)
        loss = -weighted_sum(logprobs_NT, weights_NT[index])
        return LossParts(
            total=self.scale * loss, sums={f"{self.name}/loss": loss.detach()}, terms={self.name: self.scale * loss}
        )
