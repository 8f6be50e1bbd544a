"""RunSpec -> Trainer: the only file that knows every concrete name."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from core.errors import ModelError
from core.health.finding import Row
from core.models import adapters, devices, loading
from core.models.catalogue import known_parameters
from core.models.sources.base import Origin
from core.policies import faulty as faulty_policies
from core.policies.base import Policy
from core.policies.lm.causal_lm import CausalLMPolicy
from core.spec import ArithmeticTaskSpec, ModelSpec, RunSpec
from core.spec.fit import check_fit
from core.tasks import arithmetic, registry
from core.tasks import faulty as faulty_tasks
from core.tasks.base import Task
from core.tasks.readiness import check_slices, make_ready
from core.tasks.workflow_dsl import demonstrations as workflow_dsl
from core.training.callbacks.base import Callback, Ending
from core.training.callbacks.checkpointing import Checkpointing
from core.training.callbacks.collapse_guard import CollapseGuard
from core.training.callbacks.control import Control
from core.training.callbacks.early_stopping import EarlyStopping
from core.training.callbacks.rollout_integrity import RolloutIntegrity
from core.training.callbacks.watching import Watching
from core.training.checkpoint import Checkpoints, Snapshot
from core.training.faulty import FaultyTrainer
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
    check_fit(spec)
    task = registry.build(spec.task)  # before the model, which may take minutes
    check_slices(task, spec.evaluation.slice_by)
    make_ready(task)
    policy, origin = _policy(spec)
    task = with_faults(task, spec)
    start = {} if initial is None or restart is not None else initial_weights(policy, initial)
    parts = Parts(spec=spec, policy=policy, task=task, start=start, origin=origin)
    trainer = FaultyTrainer(parts, spec.faults) if spec.faults else Trainer(parts)
    if restart is not None:
        trainer.restore(restart, table)
    trainer.callbacks = callbacks(spec, trainer, checkpoints, control)
    return trainer


def build_policy(spec: RunSpec) -> Policy:
    """The policy of a spec, wrapped in the faults it asks for."""
    return _policy(spec)[0]


def _policy(spec: RunSpec) -> tuple[Policy, Origin]:
    """The policy of a spec, and where its weights came from."""
    loaded = _loaded(spec.model)
    model, tokenizer, lora = loaded.model, loaded.tokenizer, spec.model.lora
    if spec.model.trainable is not None:
        model = adapters.train_only(model, spec.model.trainable)
    reference = adapters.frozen_copy(model) if lora is None else None
    if lora is not None:
        model = adapters.with_lora(model, lora, seed=spec.seed)
    policy = CausalLMPolicy(
        model,
        tokenizer,
        reference=reference,
        checkpointing=spec.model.gradient_checkpointing,
        mixed_precision=spec.model.mixed_precision,
    )
    wrong = [faulty_policies.FAULTS[fault] for fault in spec.faults if fault in faulty_policies.FAULTS]
    return (wrong[0](policy) if wrong else policy), loaded.origin


def _loaded(spec: ModelSpec) -> loading.LoadedModel:
    """The model as it is loaded, and torch on as many threads as pay at its size."""
    if (parameters := known_parameters(spec.source)) is not None:
        devices.set_threads(parameters)  # before: the built-in model is trained where it is not in the cache
    loaded = loading.load_with_origin(spec, tiny_pairs)
    devices.set_threads(sum(weight.numel() for weight in loaded.model.parameters()))
    return loaded


def with_faults(task: Task, spec: RunSpec) -> Task:
    """The task, wrapped in the faults a spec asks for."""
    for fault in spec.faults:
        task = faulty_tasks.FAULTS[fault](task) if fault in faulty_tasks.FAULTS else task
    return task


def build_sampler(spec: ModelSpec, adapter: Path | None = None) -> CausalLMPolicy:
    """A policy that is only drawn from: the model of a spec, under the adapter of a folder where one is given.

    Raises ModelError where either cannot be loaded, or the adapter does not fit.
    """
    loaded = _loaded(spec)
    model, tokenizer = loaded.model, loaded.tokenizer
    model = model if adapter is None else adapters.load_adapter(model, adapter)
    return CausalLMPolicy(model, tokenizer, mixed_precision=spec.mixed_precision)


def build_kept(spec: ModelSpec, weights: Mapping[str, Tensor]) -> CausalLMPolicy:
    """A policy that is only drawn from: the model of a spec with what a checkpoint has of its trained weights.

    Raises ModelError where the model cannot be loaded, CheckpointError where the weights are not of it.
    """
    loaded = _loaded(spec)
    model, tokenizer = loaded.model, loaded.tokenizer
    if spec.trainable is not None:
        model = adapters.train_only(model, spec.trainable)
    if spec.lora is not None:
        model = adapters.with_lora(model, spec.lora, seed=0)  # every weight of it is replaced
    policy = CausalLMPolicy(model, tokenizer, mixed_precision=spec.mixed_precision)
    policy.load(weights)
    return policy


def write_merged(spec: ModelSpec, adapter: Path, folder: Path) -> None:
    """The adapter of a folder added into the weights of its base, written to another as a model with its tokenizer.

    Raises ModelError where the base is held in 4 bits, or either cannot be loaded.
    """
    try:
        model, tokenizer = loading.load(spec, tiny_pairs)
        adapters.save(adapters.merge_adapter(adapters.load_adapter(model, adapter)), folder)
    except torch.OutOfMemoryError as error:
        raise ModelError("no memory to merge the weights in; try again when nothing else runs here") from error
    tokenizer.save_pretrained(folder)


def callbacks(
    spec: RunSpec,
    trainer: Trainer,
    checkpoints: Checkpoints,
    control: Callable[[int], Ending | None] | None = None,
) -> list[Callback]:
    """The run's callbacks in the order they are asked; checkpoints come last."""
    watching: list[Callback] = [RolloutIntegrity(spec.guards, spec.model.computes_in), CollapseGuard(spec.guards)]
    watching.append(Watching(spec))
    if spec.early_stopping is not None:
        watching.append(EarlyStopping(spec.early_stopping))
    if control is not None:
        watching.append(Control(control))
    return [*watching, Checkpointing(checkpoints, spec.checkpoints, trainer.snapshot, trainer.over)]


def open_checkpoints(spec: RunSpec, folder: Path) -> Checkpoints:
    """The checkpoints of a run, with the spec's retention."""
    return Checkpoints(folder, spec.checkpoints.save_total_limit)
