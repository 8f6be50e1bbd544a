"""Steps that imitate outputs: supervised, on the task's answers, and reward-weighted (RCE), and their cross-entropy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from core.algorithms.advantages import candidate_weights
from core.algorithms.names import Reduction
from core.algorithms.reductions import token_weights, weighted_sum
from core.config import RceStage, SftStage
from core.models.devices import to_device
from core.policies.base import Sampling, Scores
from core.training.clock import Spent
from core.training.step import StepContext, StepResult, StepRun, kept_candidates, rows_of, sample_and_score
from core.training.update import Batch, LossParts, add_own_losses, own_losses


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


def sft_step(context: StepContext) -> StepRun:
    """One optimiser step on `prompts_per_step` answers."""
    stage: SftStage = context.stage
    rollout = yield context.supervised()
    rows = range(len(rollout))
    loss = ImitationLoss(mask_NT=rollout.mask_NT, own_losses=own_losses(stage, context.now))
    batch = Batch(rollout=rollout, rows=rows, loss=loss, micro_rows=context.micro_rows(len(rows)), wants=loss.wants)
    metrics = yield context.learn([batch], spent=Spent())
    weights = {f"weight/{name}": weight for name, weight in loss.own_losses.items()}
    return StepResult(row={**metrics, "weight/supervised": loss.scale, **weights})


def rce_step(context: StepContext) -> StepRun:
    """Sample, score, look, imitate. The weights of a group sum to 1; a missing reward has weight 0."""
    stage: RceStage = context.stage
    how = Sampling(
        temperature=context.now(stage.temperature),
        max_completion_length=stage.max_completion_length,
        stop_strings=stage.stop_strings,
    )
    step_groups = yield from sample_and_score(context, how)
    groups, chosen, k = step_groups.groups, step_groups.chosen, stage.num_generations
    rewards_PK = kept_candidates(context, groups.rewards_PK, groups)
    weights_PK = torch.from_numpy(candidate_weights(rewards_PK.numpy(), tau=context.now(stage.tau)))
    sizes_P1 = groups.present.sum(-1, keepdim=True)
    advantages_PK = torch.zeros_like(weights_PK)  # what a weight amounts to; see docs/algorithms.md
    advantages_PK[chosen] = (weights_PK * sizes_P1 - 1).masked_fill(~groups.present, 0.0)[chosen]
    row = {**step_groups.row(advantages_PK), "temperature": how.temperature}
    rows = rows_of(chosen, k)
    if step_groups.ending is None and bool(weights_PK[chosen].any()):
        rollout = groups.rollout
        mask_NT = rollout.mask_NT.clone()
        mask_NT[[row for row in range(len(rollout)) if row not in set(rows)]] = False
        loss = ImitationLoss(
            mask_NT=mask_NT,
            weights_N=weights_PK.flatten() * (int(sizes_P1[chosen].sum()) / len(chosen)),  # 1 a group in all
            name="rce",
            reduction="sequence_sum",
            own_losses=own_losses(stage, context.now),
        )
        batch = Batch(rollout=rollout, rows=rows, loss=loss, micro_rows=context.micro_rows(len(rows)), wants=loss.wants)
        metrics = yield context.learn([batch], spent=step_groups.spent)
        weights = {f"weight/{name}": weight for name, weight in loss.own_losses.items()}
        row |= {**metrics, "weight/rce": loss.scale, **weights}
    return step_groups.result(context, row, advantages_PK, {})
