"""grpoctl's step: the trainer that `grpoctl run` assembles, driven as it drives it, one step at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.trl_step.setting import Own, Setting, Step, spec_of
from benchmarks.trl_step.watch import Watch
from core.assemble import assemble, open_checkpoints
from core.policies.base import Rollout
from core.policies.lm.causal_lm import CausalLMPolicy
from core.policies.savings import Savings
from core.randomness import ORDER, RowKey, permutation
from core.tasks.custom.task import CustomTask
from core.tasks.text import prompt_of
from core.training.outcome import Ending
from core.training.parallel import Machine
from core.training.requests import Evaluated, Learn, Request, Sample, StepDone
from core.training.trainer import Steps, Trainer, drive

NEVER = -1  # no token has this id
MOMENT = 0.1  # of a first gradient that AdamW's exp_avg holds: 1 - beta1


def own_trainer(setting: Setting, own: Own, model: Path, data: Path, *, clipped_at: float = 1.0) -> Trainer:
    """A run's trainer before its first step. At a fixed length no token ends a completion."""
    spec = spec_of(setting, own, model, data, clipped_at=clipped_at)
    trainer = assemble(spec, open_checkpoints(spec, data.parent))
    policy = policy_of(trainer)
    trainer.savings = policy.savings = Savings().without(*own.without)
    if setting.fixed:
        policy.end_ids = torch.full_like(policy.end_ids, NEVER)
    torch.set_num_threads(setting.threads)
    return trainer


def policy_of(trainer: Trainer) -> CausalLMPolicy:
    """Its policy, which is a causal LM's."""
    assert isinstance(trainer.policy, CausalLMPolicy)
    return trainer.policy


def ordered_questions(trainer: Trainer) -> list[str]:
    """The training prompts in the order in which the first epoch's steps ask them."""
    pool = trainer.task.examples("train")
    return [prompt_of(pool[index]).text for index in permutation(RowKey(trainer.spec.seed, ORDER, 0, 0, 0), len(pool))]


def close(trainer: Trainer) -> None:
    """End the process with the reward function."""
    if isinstance(trainer.task, CustomTask):
        trainer.task.close()


class Ours:
    """Takes one step at a time. What is timed is the step's `total`, as the run records it."""

    def __init__(self, trainer: Trainer, setting: Setting) -> None:
        self._trainer, self._setting, self._steps = trainer, setting, trainer.steps()
        self.done: list[Step] = []
        self._tokens = 0
        drive(_one(self._steps), self)  # the evaluation before the first step
        self.done.clear()

    def step(self) -> None:
        """One step more. Raises RuntimeError where a guard ended the run instead."""
        torch.set_num_threads(self._setting.threads)
        before, watch = len(self.done), Watch(cuda=self._setting.cuda)
        ending = drive(_one(self._steps), self)
        if len(self.done) == before or ending is not GOING:
            raise RuntimeError(f"the run ended: {ending.message}")
        seconds, cpu = watch.read()
        if not self._setting.cuda:
            seconds = self.done[-1].seconds  # as the run records it; on CUDA its clock may stop before the device does
        self.done[-1] = replace(self.done[-1], seconds=seconds, cpu=cpu)

    def step_done(
        self,
        row: Mapping[str, float | None],
        samples: Sequence[Mapping[str, object]],
        timings: Mapping[str, float],
        evaluated: Evaluated | None = None,
    ) -> None:
        """Keeps the step."""
        generated = int(row["tokens"] or 0) - self._tokens
        self._tokens += generated
        trained = int(row.get("policy/tokens_drawn") or 0)
        parts = {name: seconds for name, seconds in timings.items() if name != "total"}
        self.done.append(Step(seconds=timings["total"], cpu=0.0, generated=generated, trained=trained, parts=parts))


GOING = Ending(status="COMPLETED", message="")


def _one(steps: Steps) -> Steps:
    """What is left of a run up to its next finished step."""
    try:
        request = next(steps)
        while not isinstance(request, StepDone):
            answer = yield request
            request = steps.send(answer)
    except StopIteration as stop:
        ending: Ending = stop.value
        return ending
    yield request
    return GOING


@dataclass(frozen=True, kw_only=True, slots=True)
class Frozen:
    """What a first step made of its rollout: the loss and, by name, the gradient of every trained weight."""

    rollout: Rollout
    loss: float
    gradient: Mapping[str, Tensor]


def frozen(trainer: Trainer, rollout: Rollout | None = None) -> Frozen:
    """The first step, of this rollout where one is given. Its `max_grad_norm` must not clip.

    The gradient is read where the optimiser keeps it, so that nothing but what every run calls computes it.
    """
    machine, steps = Machine(), trainer.steps()
    loss, answer = float("nan"), None
    while True:
        request = steps.send(answer)
        if isinstance(request, StepDone):
            if request.row["step"]:
                break
            answer = None
            continue
        answer = _answer(request, machine, rollout)
        if isinstance(request, Sample) and request.name == "sample":
            rollout = answer
        if isinstance(request, Learn):
            loss = answer["loss"]
    assert rollout is not None
    moments = {name: value / MOMENT for name, value in trainer.update.state().items() if name.endswith(".exp_avg")}
    gradient = {name.removesuffix(".exp_avg"): value for name, value in moments.items()}
    return Frozen(rollout=rollout, loss=loss, gradient=gradient)


def _answer(request: Request, machine: Machine, rollout: Rollout | None) -> Any:
    if isinstance(request, Sample) and request.name == "sample" and rollout is not None:
        return rollout
    assert not isinstance(request, StepDone)
    return request.run(machine)
