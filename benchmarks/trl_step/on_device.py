"""What only a GPU shows of our step: whether recorded tokens are those that are run anew, and where the CPU waits."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.trl_step.ours import close, own_trainer, policy_of
from benchmarks.trl_step.setting import Own, Setting
from core.policies.base import Sampling
from core.policies.savings import Savings
from core.randomness import TRAIN, RowKey

WAITED = "synchronizing CUDA operation"  # what torch says where the CPU waits, when it is asked to


@dataclass(frozen=True, kw_only=True, slots=True)
class Agreement:
    """Draws of the same rows by the same uniforms, steps recorded and run anew."""

    tokens: int
    different: int
    largest_gap: float  # of the log-probs of tokens that are the same

    def line(self) -> str:
        """In words."""
        return (
            f"recorded steps and steps run anew: {self.different} of {self.tokens} tokens differ, "
            f"log-probs by at most {self.largest_gap:.1e}"
        )


def agreement(setting: Setting, dtype: str, model: Path, data: Path) -> Agreement:
    """One rollout of the setting's size, sampled both ways."""
    trainer = own_trainer(setting, Own(dtype=dtype), model, data)
    policy = policy_of(trainer)
    prompts = trainer.task.examples("train")[: setting.groups]
    keys = [RowKey(setting.seed, TRAIN, 1, 0, row) for row in range(setting.rows)]
    how = Sampling(temperature=1.0, max_completion_length=setting.new_tokens)
    found = []
    for savings in (Savings(), Savings().without("recorded_steps")):
        policy.savings = savings
        found.append(policy.sample(prompts, setting.size, how, keys))
    close(trainer)
    recorded, anew = found
    assert recorded.drawn_NT is not None
    assert anew.drawn_NT is not None
    width = min(recorded.mask_NT.shape[1], anew.mask_NT.shape[1])
    both_NT = recorded.mask_NT[:, :width] & anew.mask_NT[:, :width]
    same_NT = both_NT & (recorded.actions["ids"][:, :width] == anew.actions["ids"][:, :width])
    gaps_NT = (recorded.drawn_NT[:, :width] - anew.drawn_NT[:, :width]).abs().masked_fill(~same_NT, 0.0)
    tokens = max(int(recorded.mask_NT.sum()), int(anew.mask_NT.sum()))
    return Agreement(tokens=tokens, different=tokens - int(same_NT.sum()), largest_gap=float(gaps_NT.max()))


def waits(step: Callable[[], None]) -> Counter[str]:
    """Where the CPU waited for the GPU in one step, `file:line` of the innermost Python, and how often."""
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return Counter(f"{Path(one.filename).name}:{one.lineno}" for one in said if WAITED in str(one.message))
