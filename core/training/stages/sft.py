"""A supervised step: cross-entropy on the task's own answers."""

from __future__ import annotations

from core.config import SftStage
from core.training.clock import Spent
from core.training.grpo_loss import own_losses
from core.training.imitation_loss import ImitationLoss
from core.training.stages.base import Done, Here, StepRun
from core.training.update import Batch


def sft_step(here: Here) -> StepRun:
    """One optimiser step on `prompts_per_step` answers."""
    stage: SftStage = here.stage
    rollout = yield here.supervised(stage.prompts_per_step)
    rows = range(len(rollout))
    loss = ImitationLoss(mask_NT=rollout.mask_NT, own_losses=own_losses(stage, here.now))
    batch = Batch(rollout=rollout, rows=rows, loss=loss, micro_rows=here.micro_rows(len(rows)), wants=loss.wants)
    learned = yield here.learn([batch], spent=Spent())
    weights = {f"weight/{name}": weight for name, weight in loss.own_losses.items()}
    return Done(row={**learned, "weight/supervised": loss.scale, **weights})
