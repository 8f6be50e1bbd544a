"""Settings -> task: only the list of the built-in ones, and those that packages add."""

from __future__ import annotations

from core import plugins
from core.config.task import (
    BUILT_IN,
    ArithmeticTaskSpec,
    CustomTaskSpec,
    Gsm8kTaskSpec,
    TaskConfig,
    WorkflowDslTaskSpec,
)
from core.errors import SpecError
from core.tasks.arithmetic import ArithmeticTask
from core.tasks.base import Task
from core.tasks.workflow_dsl.task import WorkflowDslTask


def build(spec: TaskConfig) -> Task:
    """The task that `spec` asks for. Raises SpecError where the spec asks for what cannot be had."""
    task = unread(spec)
    if is_local(spec):  # the hub is not asked before a run needs it
        task.examples("train")
    return task


def unread(spec: TaskConfig) -> Task:
    """The same, whose data may be gone by now: what it makes of samples does not need them. Raises SpecError."""
    match spec:
        case WorkflowDslTaskSpec():
            return WorkflowDslTask(spec)
        case ArithmeticTaskSpec():
            return ArithmeticTask(spec)
        case Gsm8kTaskSpec():
            from core.tasks.gsm8k.task import Gsm8kTask

            return Gsm8kTask(spec)
        case CustomTaskSpec():
            from core.tasks.custom.task import CustomTask

            return CustomTask(spec)
        case _:
            added = plugins.load("grpoctl.tasks", spec.name, BUILT_IN)
            if added is None:
                raise SpecError(f"the task {spec.name} is no longer installed", key="task.name")
            task: Task = added.build(spec)
            return task


def is_local(spec: TaskConfig) -> bool:
    """Whether its problems are files of this machine, to be looked at now."""
    if isinstance(spec, CustomTaskSpec):
        return all(data is None or data.path is not None for data in (spec.data, spec.eval_data, spec.test_data))
    return isinstance(spec, Gsm8kTaskSpec) and spec.path is not None
