"""The first step of a run, by our trainer and by TRL's as `trainer.kind: trl` builds it, on one batch.

Our completions of step 1 are handed to TRL's trainer; everything else of the step is its own, as a run has it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.trl_step.equality import moved
from core.assemble import assemble, open_checkpoints
from core.config import GrpoStage, RunSpec
from core.policies.base import Rollout
from core.tasks import registry
from core.training.parallel import Machine
from core.training.requests import Sample, StepDone
from grpoctl.executors.trl_process import build_trainer
from grpoctl.runs.run_dir import RunDir


@dataclass(frozen=True, kw_only=True, slots=True)
class First:
    """A first step of ours."""

    rollout: Rollout
    row: Mapping[str, float | None]
    before: Mapping[str, torch.Tensor]
    after: Mapping[str, torch.Tensor]


def first_step(spec: RunSpec, folder: Path, *, from_moved: bool) -> First:
    """Ours, as a run makes it; the evaluation before it included."""
    trainer = assemble(spec, open_checkpoints(spec, folder))
    if from_moved:  # an adapter that is not at its start, where there is no KL
        trainer.policy.load(moved(trainer.policy.state()))
    steps, rollouts = trainer.steps(), list[Rollout]()
    answer: Any = None
    before = trainer.policy.state()
    machine = Machine()
    while True:
        request = steps.send(answer)
        if isinstance(request, StepDone):
            if request.row["step"] == 1:
                return First(rollout=rollouts[0], row=request.row, before=before, after=trainer.policy.state())
            answer = None
            continue
        answer = request.run(machine)
        if isinstance(request, Sample) and request.name == "sample":
            rollouts.append(answer)


def theirs(
    spec: RunSpec, first: First, folder: Path, *, from_moved: bool
) -> tuple[dict[str, float], Any, Sequence[Any]]:
    """TRL's logs of the same step, its trainer, and the prompts that it was going to ask."""
    stage = next(one for one in spec.stages.values() if isinstance(one, GrpoStage))
    trainer = build_trainer(spec, stage, registry.build(spec.task), RunDir(path=folder))
    asked: list[Any] = []
    start = {name: one.detach().clone() for name, one in trainer.model.named_parameters() if one.requires_grad}
    if set(start) != set(first.before):
        raise ValueError("the two train different weights")
    if from_moved:
        for name, parameter in trainer.model.named_parameters():
            if parameter.requires_grad:
                parameter.data.copy_(first.before[name])
    elif not all(torch.equal(start[name], weight) for name, weight in first.before.items()):
        raise ValueError("the two start from different weights")
    ids = [row[mask].tolist() for row, mask in zip(
        first.rollout.actions["prompt_ids"], first.rollout.actions["prompt_mask"].bool(), strict=True
    )]  # fmt: skip

    def rollout(prompts: Sequence[Any], own: Any) -> dict[str, Any]:
        asked.extend(prompts)
        read = own._tokenize_prompts(list(prompts))[0]
        if [list(row) for row in read] != ids:
            raise ValueError("TRL reads the prompts as other tokens")
        completions = [list(row) for row in first.rollout.tokens]
        return {"prompt_ids": ids, "completion_ids": completions, "logprobs": None}

    trainer.rollout_func = rollout
    return one_step(stage, trainer, float(first.row["learning_rate"] or 0)), trainer, asked


def one_step(stage: GrpoStage, trainer: Any, rate: float) -> dict[str, float]:
    """TRL's logs of its first step, driven as a run drives it."""
    from transformers import TrainerCallback

    logs: dict[str, float] = {}
    high = stage.epsilon if stage.epsilon_high is None else stage.epsilon_high
    values = {
        "learning_rate": rate, "temperature": stage.temperature.start,
        "beta": stage.beta.start, "epsilon": stage.epsilon.start,
        "epsilon_high": stage.cispo_max_weight if stage.surrogate == "cispo" else high.start,
    }  # fmt: skip

    class Watch(TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            trainer.follow(values)
            trainer.set_rate()

        def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
            trainer.before_optimiser()

        def on_log(self, args: Any, state: Any, control: Any, logs_: Any = None, **named: Any) -> None:
            if "loss" in named["logs"]:
                logs.update(named["logs"])

    trainer.add_callback(Watch())
    trainer.train()
    return logs
