"""Runs that are computed alone and by several ranks: what each records, and the weights and moments it ends with.

`python ranks.py RANK SIZE MEETING FOLDER` is one of the ranks; every one writes all that it found to FOLDER/RANK.pt.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from core.config import RceStage, SftStage
from core.policies.base import Rollout, Sampling, Scores, Weights
from core.policies.lm.causal_lm import CausalLMPolicy
from core.randomness import RowKey
from core.tasks.base import Example
from core.training.parallel import ALONE, Machine, World, joined_ranks
from core.training.trainer import Trainer, drive
from tests.fakes import PricedTask, Recorder, ScriptedPolicy, grpo_stage, small_policy, trainer_of

LEARNING_RATE = 0.01


def letters(number: int, output: str) -> float:
    """Longer is better, and the letter c costs: groups of different rewards."""
    return len(output) / 8 - 0.25 * output.count("c") + 0.1 * number


def arms(number: int, output: str) -> float:
    """Arm 1 earns 1 on even problems; nobody earns anything on odd ones, so their groups are dead."""
    return float(output == "1") * (number % 2 == 0)


def exact(policy: CausalLMPolicy) -> CausalLMPolicy:
    """In fp64: else each comparison would be one of how fp32 rounds beside this padding or that."""
    policy.model.double()
    if policy.reference is not None:
        policy.reference = {name: weight.double() for name, weight in policy.reference.items()}
    return policy


def lm(**stage: Any) -> Trainer:
    adapter = stage.pop("adapter", False)
    stage = {"max_steps": 2, "prompts_per_step": 3, "num_generations": 4, "learning_rate": LEARNING_RATE} | stage
    policy = exact(small_policy(lora_dropout=0.0 if adapter else None))
    if adapter:  # a fresh one gives no gradient to one of its two halves
        generator = torch.Generator().manual_seed(3)
        with torch.no_grad():
            for _, parameter in sorted(policy.trainable().items()):
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return trainer_of(policy, PricedTask(letters, prompts=5, answer="bdf"), grpo_stage(**stage))


class ShortOfMemory(CausalLMPolicy):
    """Rank 1 cannot learn from more than two rows at once, nor sample or score more than three."""

    def sample(self, prompts: Sequence[Example], k: int, how: Sampling, keys: Sequence[RowKey]) -> Rollout:
        self._need(len(keys), 3)
        return super().sample(prompts, k, how, keys)

    def score(self, rollout: Rollout, rows: Sequence[int], *, wants: frozenset[str], weights: Weights) -> Scores:
        self._need(len(rows), 2 if torch.is_grad_enabled() else 3)
        return super().score(rollout, rows, wants=wants, weights=weights)

    def _need(self, rows: int, room: int) -> None:
        if os.environ.get("RANK") == "1" and rows > room:
            raise torch.OutOfMemoryError("CUDA out of memory.")


def short_of_memory() -> Trainer:
    trainer = lm(beta=0.1)
    trainer.policy.__class__ = ShortOfMemory
    return trainer


def supervised() -> Trainer:
    stage = SftStage.model_validate(
        {"kind": "sft", "max_steps": 2, "prompts_per_step": 3, "learning_rate": LEARNING_RATE}
    )
    return trainer_of(exact(small_policy()), PricedTask(letters, prompts=5, answer="bdf"), stages={"sft": stage})


def weighted() -> Trainer:
    fields = {
        "kind": "rce",
        "max_steps": 2,
        "prompts_per_step": 3,
        "num_generations": 4,
        "learning_rate": LEARNING_RATE,
    }
    return trainer_of(
        exact(small_policy()), PricedTask(letters, prompts=5), stages={"rce": RceStage.model_validate(fields)}
    )


def table(**stage: Any) -> Trainer:
    return trainer_of(ScriptedPolicy(), PricedTask(arms, prompts=5), grpo_stage(max_steps=4, **stage))


SCENARIOS: Mapping[str, Callable[[], Trainer]] = {
    "plain": lm,
    "adapter": lambda: lm(adapter=True, max_steps=3),
    "kl and shares": lambda: lm(beta=0.1, gradient_accumulation_steps=4, reduction="token_mean"),
    "minibatches": lambda: lm(minibatches=3, num_iterations=2),
    "one prompt": lambda: lm(prompts_per_step=1),
    "entropy": lambda: lm(entropy_coef=0.01, entropy_weighting="token", importance_sampling_cap=2.0),
    "blended": lambda: lm(supervised_weight=0.5),
    "short of memory": short_of_memory,
    "supervised": supervised,
    "weighted": weighted,
    "dynamic": lambda: table(prompts_per_step=3, dynamic_sampling={"max_attempts": 3}, learning_rate=0.05),
    "moving": lambda: table(prompts_per_step=3, learning_rate=0.05, beta=0.1),
}


def found(scenario: Callable[[], Trainer], world: World = ALONE) -> dict[str, Any]:
    """rows, samples, weights and moments (of which the first is the mean gradient) of the scenario."""
    trainer, recorder = scenario(), Recorder()
    drive(trainer.steps(), recorder, Machine(world=world))
    moments: Mapping[str, Tensor] = trainer.update.state()
    return {
        "rows": recorder.rows,
        "samples": recorder.samples,
        "weights": dict(trainer.policy.state()),
        "moments": {name: value for name, value in moments.items() if not name.endswith(".step")},
    }


def main(rank: int, size: int, meeting: Path, folder: Path) -> None:
    """All scenarios as this rank."""
    torch.set_num_threads(1)
    with joined_ranks(rank, size, meeting) as world:
        results = {name: found(scenario, world) for name, scenario in SCENARIOS.items()}
        world.gather(None)  # nobody leaves while another still waits for it
    torch.save(results, folder / f"{rank}.pt")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4]))
