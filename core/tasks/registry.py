"""Settings -> task: the list of the built-in ones, those that packages add, and whether a spec's task can be had."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from core import plugins
from core.config.policy import PointerConfig
from core.config.run import RunSpec
from core.config.task import (
    BUILT_IN,
    ArithmeticTaskSpec,
    CustomTaskSpec,
    ExampleSelectionTaskSpec,
    ExternalTaskSpec,
    Gsm8kTaskSpec,
    RestorationTaskSpec,
    TaskConfig,
    WorkflowDslTaskSpec,
)
from core.errors import SpecError
from core.tasks.arithmetic import ArithmeticTask
from core.tasks.base import Example, Task
from core.tasks.external import ExternalTask
from core.tasks.rewards.worker import NotFound, check_reference
from core.tasks.workflow_dsl.task import WorkflowDslTask


def build(spec: TaskConfig) -> Task:
    """The task that `spec` asks for. Raises SpecError where the spec asks for what cannot be had."""
    task = build_without_data(spec)
    if is_local(spec):  # the hub is not asked before a run needs it
        task.examples("train")
    return task


def build_without_data(spec: TaskConfig) -> Task:
    """The task, its data not read: they may be gone by now, and samples are shown without them. Raises SpecError."""
    task: Task
    match spec:
        case WorkflowDslTaskSpec():
            task = WorkflowDslTask(spec)
        case ArithmeticTaskSpec():
            task = ArithmeticTask(spec)
        case Gsm8kTaskSpec():
            from core.tasks.gsm8k import Gsm8kTask

            task = Gsm8kTask(spec)
        case CustomTaskSpec():
            from core.tasks.custom.task import CustomTask

            task = CustomTask(spec)
        case ExampleSelectionTaskSpec():
            from core.tasks.selection.task import ExampleSelectionTask

            task = ExampleSelectionTask(spec)
        case RestorationTaskSpec():
            from core.tasks.restoration.task import RestorationTask

            task = RestorationTask(spec)
        case ExternalTaskSpec():
            task = ExternalTask()
        case _:
            added = plugins.load("grpoctl.tasks", spec.name, BUILT_IN)
            if added is None:
                raise SpecError(f"the task {spec.name} is no longer installed", key="task.name")
            task = added.build(spec)
    return task


def is_local(spec: TaskConfig) -> bool:
    """Whether its problems are files of this machine, to be looked at now."""
    if isinstance(spec, CustomTaskSpec):
        return all(data is None or data.path is not None for data in (spec.data, spec.eval_data, spec.test_data))
    if isinstance(spec, ExampleSelectionTaskSpec):
        return spec.data is not None
    if isinstance(spec, RestorationTaskSpec):
        return True  # built-in photographs lie in the packages' folders
    return isinstance(spec, Gsm8kTaskSpec) and spec.path is not None


MOST_SLICES = 50  # of an evaluation: each is a metric of its own


def check_task(spec: RunSpec) -> None:
    """Refuses a task that cannot be had, as far as this machine's files tell; runs nothing. Raises SpecError."""
    if spec.trainer.kind == "command":  # what its program needs, that program says
        return
    task = build(spec.task)
    if is_local(spec.task):
        check_slices(task, spec.evaluation.slice_by)
    if isinstance(spec.task, CustomTaskSpec):
        _check_reward_files(spec.task)
    if isinstance(spec.task, RestorationTaskSpec):
        task.make_ready()
    if isinstance(spec.policy, PointerConfig) and isinstance(spec.task, ExampleSelectionTaskSpec):
        _check_embeddings(spec.policy, spec.task, task)


def _check_embeddings(policy: PointerConfig, config: ExampleSelectionTaskSpec, task: Task) -> None:
    """Raises SpecError where embeddings are not of the policy's width, or a query has fewer candidates than picks."""
    if config.world is not None:  # not made for this: making them takes a second
        fewest, queries, width = config.world.candidates, "queries have", config.world.width
    else:
        examples: list[Any] = [*task.examples("train"), *task.examples("eval")]
        least = min(examples, key=lambda example: len(example.inputs["ids"]))
        fewest, queries = len(least.inputs["ids"]), f"query {least.id} has"
        width = least.inputs["query"].shape[-1]
    if width != policy.width:
        raise SpecError(
            f"got {policy.width}, and the embeddings have {width} numbers; allowed: {width}", key="policy.width"
        )
    if fewest < policy.shots:
        got = f"got {policy.shots}, and {queries} {fewest} candidates"
        raise SpecError(f"{got}; allowed: at most {fewest}, or pool: all", key="policy.shots")


def _check_reward_files(task: CustomTaskSpec) -> None:
    for number, reward in enumerate(task.rewards):
        try:
            check_reference(reward.function, Path.cwd())
        except NotFound as error:
            raise SpecError(f"{reward.function}: {error}", key=f"task.rewards.{number}.function") from None


def check_cut(example: Example, slice_by: str) -> None:
    """Raises SpecError where a problem does not have this fact, or it is a picture or another array."""
    facts = example.facts
    if slice_by in facts and not _is_array(facts[slice_by]):
        return
    there = [name for name, value in facts.items() if not _is_array(value)]
    raise SpecError(f"got {slice_by!r}; this task's problems have: {', '.join(there)}", key="evaluation.slice_by")


def _is_array(fact: object) -> bool:
    return bool(getattr(fact, "shape", ()))


def check_slices(task: Task, slice_by: str | None) -> None:
    """Raises SpecError where the evaluation is to be cut by what its problems do not have, or what hardly two share."""
    if slice_by is None:
        return
    held_out, key = task.examples("eval"), "evaluation.slice_by"
    check_cut(held_out[0], slice_by)
    values = len({str(example.facts.get(slice_by)) for example in held_out})
    if values > MOST_SLICES:
        got = f"got {slice_by!r}, which has {values} values among {len(held_out)} problems"
        raise SpecError(f"{got}; allowed: at most {MOST_SLICES}", key=key)
