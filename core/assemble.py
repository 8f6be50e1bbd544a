"""RunSpec -> Trainer, by the registries of policies and tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from torch import Tensor

from core.config import RunSpec
from core.config.run import check_fit
from core.faults import FaultyTrainer, faulty_policy, faulty_task
from core.health.finding import Row
from core.health.guard import watched_guards
from core.models.messages import stage
from core.policies import registry as policies
from core.policies.base import Policy
from core.tasks import registry as tasks
from core.tasks.registry import check_slices
from core.training.callbacks import (
    Callback,
    Checkpointing,
    CollapseGuard,
    EarlyStopping,
    ParentControl,
    RolloutIntegrity,
    Watching,
)
from core.training.checkpoint import Checkpoints, Drafts, Snapshot, initial_weights
from core.training.outcome import Ending
from core.training.trainer import Parts, Trainer


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
    check_fit(spec)
    policies.check_optimisers(spec.stages)
    if restart is None:
        policies.check_policy(spec)
    task = tasks.build(spec.task)  # before the model, which may take minutes
    check_slices(task, spec.evaluation.slice_by)
    task.make_ready()
    if spec.model is not None:
        stage("importing transformers")
    policy, origin = policies.build(spec)
    policy, task = faulty_policy(policy, spec), faulty_task(task, spec)
    start = {} if initial is None or restart is not None else initial_weights(policy, initial)
    if start:
        policy.keep("reference")
    parts = Parts(spec=spec, policy=policy, task=task, start=start, origin=origin)
    trainer = FaultyTrainer(parts, spec.faults) if spec.faults else Trainer(parts)
    if restart is not None:
        trainer.restore(restart, table)
    trainer.callbacks = callbacks(spec, trainer, checkpoints, control)
    return trainer


def build_policy(spec: RunSpec) -> Policy:
    """The policy of a spec, with the fault that it asks for. Raises ModelError, SpecError."""
    return faulty_policy(policies.build(spec)[0], spec)


def callbacks(
    spec: RunSpec,
    trainer: Trainer,
    checkpoints: Checkpoints,
    control: Callable[[int], Ending | None] | None = None,
) -> list[Callback]:
    """The run's callbacks in the order they are asked; checkpoints come last."""
    watching: list[Callback] = [RolloutIntegrity(spec.guards, spec.computes_in), CollapseGuard(watched_guards(spec))]
    watching.append(Watching(spec))
    if spec.early_stopping is not None:
        watching.append(EarlyStopping(spec.early_stopping))
    if control is None:
        return [*watching, Checkpointing(checkpoints, spec.checkpoints, trainer.snapshot, trainer.over)]
    parent = ParentControl(control)

    def over() -> bool:
        return trainer.over() or parent.paused

    return [*watching, parent, Checkpointing(checkpoints, spec.checkpoints, trainer.snapshot, over)]


def open_checkpoints(spec: RunSpec, folder: Path, drafts: Drafts | None = None) -> Checkpoints:
    """The checkpoints of a run, with the spec's retention; `drafts` of a run that others may take over."""
    return Checkpoints(folder, spec.checkpoints.save_total_limit, drafts)
