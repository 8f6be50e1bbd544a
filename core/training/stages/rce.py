"""A reward-weighted step: sample a group per prompt, then imitate it with weights softmax(reward / tau)."""

from __future__ import annotations

import torch

from core.algorithms.candidates import candidate_weights, whole
from core.config import RceStage
from core.policies.base import Sampling
from core.training.grpo_loss import own_losses
from core.training.imitation_loss import ImitationLoss
from core.training.stages.base import Here, StepRun
from core.training.stages.sampling import gather, rows_of
from core.training.step_metrics import sample_rows
from core.training.update import Batch


def rce_step(here: Here) -> StepRun:
    """Sample, score, look, imitate. The weights of a group sum to 1; a missing reward has weight 0."""
    stage: RceStage = here.stage
    how = Sampling(temperature=here.now(stage.temperature), max_completion_length=stage.max_completion_length)
    found = yield from gather(here, how)
    groups, k = found.groups, stage.num_generations
    keep = None if stage.keep_candidates is None else whole(here.now(stage.keep_candidates))
    weights_PK = torch.from_numpy(candidate_weights(groups.rewards_PK.numpy(), tau=here.now(stage.tau), keep=keep))
    advantages_PK = torch.zeros_like(weights_PK)  # what a weight amounts to; see docs/algorithms.md
    advantages_PK[found.chosen] = weights_PK[found.chosen] * k - 1
    row = {**found.row(advantages_PK), "temperature": how.temperature}
    rows = rows_of(found.chosen, k)
    if found.ending is None and bool(weights_PK[found.chosen].any()):
        rollout = groups.rollout
        mask_NT = rollout.mask_NT.clone()
        mask_NT[[row for row in range(len(rollout)) if row not in set(rows)]] = False
        loss = ImitationLoss(
            mask_NT=mask_NT,
            weights_N=weights_PK.flatten() * k,
            name="rce",
            reduction="sequence_sum",
            own_losses=own_losses(stage, here.now),
        )
        batch = Batch(rollout=rollout, rows=rows, loss=loss, micro_rows=here.micro_rows(len(rows)), wants=loss.wants)
        learned = yield here.learn([batch], spent=found.spent)
        weights = {f"weight/{name}": weight for name, weight in loss.own_losses.items()}
        row |= {**learned, "weight/rce": loss.scale, **weights}
    return found.done(row, sample_rows(here.task, groups, advantages_PK, here.step), {})
