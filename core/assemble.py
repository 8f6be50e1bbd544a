"""RunSpec -> Trainer: the only file that knows every concrete name."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from core.errors import SpecError
from core.health.finding import Row
from core.models import adapters, sources
from core.policies.base import Policy
from core.policies.causal_lm import CausalLMPolicy
from core.policies.faulty import RolloutInTrainMode
from core.spec import ArithmeticTaskSpec, RunSpec
from core.spec.fit import check_fit
from core.tasks import arithmetic, registry
from core.tasks.base import Task
from core.tasks.workflow_dsl import demonstrations as workflow_dsl
from core.training.callbacks.base import Callback, Ending
from core.training.callbacks.checkpointing import Checkpointing
from core.training.callbacks.collapse_guard import CollapseGuard
from core.training.callbacks.control import Control
from core.training.callbacks.early_stopping import EarlyStopping
from core.training.callbacks.rollout_integrity import RolloutIntegrity
from core.training.checkpoint import Checkpoints, Snapshot
from core.training.initial import initial_weights
from core.training.trainer import Parts, Trainer


@functools.cache  # as much work as loading the model: a process that executes many runs does it once
def tiny_pairs() -> list[tuple[str, str]]:
    """What `builtin:tiny` is warm-started on: valid answers to both tasks, and a share of free text."""
    sums = [ArithmeticTaskSpec(name="arithmetic", digits=1, train_prompts=20, eval_prompts=20)]
    sums.append(ArithmeticTaskSpec(name="arithmetic", digits=2))
    return [
        *workflow_dsl.demonstrations(4000, seed=0),
        *workflow_dsl.free_text(160, seed=1),
        *(pair for spec in sums for pair in arithmetic.ArithmeticTask(spec).demonstrations(500, seed=0)),
    ]


def assemble(
    spec: RunSpec,
    checkpoints: Checkpoints,
    *,
    restart: Snapshot | None = None,
    table: Sequence[Row] = (),
    initial: Mapping[str, Tensor] | None = None,
    control: Callable[[int], Ending | None] | None = None,
) -> Trainer:
    """A trainer ready to step, standing at `restart` with the rows recorded so far where one is given.

    `initial` are the weights that a fresh run starts from (`init_from`); what of them fits is taken, the rest counted.
    `control` is asked after every evaluated step whether the run is to end there.

    Raises: ModelError, SpecError, TaskError, CheckpointError.
    """
    if spec.model.source == sources.TINY:
        torch.set_num_threads(1)  # a second thread costs more than it gives at this size
    check_fit(spec)
    policy = build_policy(spec)
    start = {} if initial is None or restart is not None else initial_weights(policy, initial)
    task = registry.build(spec.task)
    check_slices(spec, task)
    trainer = Trainer(Parts(spec=spec, policy=policy, task=task, start=start))
    if restart is not None:
        trainer.restore(restart, table)
    trainer.callbacks = callbacks(spec, trainer, checkpoints, control)
    return trainer


def check_slices(spec: RunSpec, task: Task) -> None:
    """Raises SpecError where the evaluation is to be cut by something that its problems do not have."""
    name, facts = spec.evaluation.slice_by, task.examples("eval")[0].facts
    if name is not None and name not in facts:
        raise SpecError(f"got {name!r}; this task's problems have: {', '.join(facts)}", key="evaluation.slice_by")


def build_policy(spec: RunSpec) -> Policy:
    """The policy of a spec, wrapped in the faults it asks for."""
    model, tokenizer = sources.load(spec.model, tiny_pairs)
    lora = spec.model.lora
    reference = adapters.frozen_copy(model) if lora is None else None
    if lora is not None:
        model = adapters.with_lora(model, lora, seed=spec.seed)
    policy = CausalLMPolicy(model, tokenizer, reference=reference, checkpointing=spec.model.gradient_checkpointing)
    return RolloutInTrainMode(policy) if "rollout-in-train-mode" in spec.faults else policy


def callbacks(
    spec: RunSpec,
    trainer: Trainer,
    checkpoints: Checkpoints,
    control: Callable[[int], Ending | None] | None = None,
) -> list[Callback]:
    """The run's callbacks in the order they are asked; checkpoints come last."""
    watching: list[Callback] = [RolloutIntegrity(spec.guards, spec.model.computes_in), CollapseGuard(spec.guards)]
    if spec.early_stopping is not None:
        watching.append(EarlyStopping(spec.early_stopping))
    if control is not None:
        watching.append(Control(control))
    return [*watching, Checkpointing(checkpoints, spec.checkpoints, trainer.snapshot, trainer.over)]


def open_checkpoints(spec: RunSpec, folder: Path) -> Checkpoints:
    """The checkpoints of a run, with the spec's retention."""
    return Checkpoints(folder, spec.checkpoints.save_total_limit)
