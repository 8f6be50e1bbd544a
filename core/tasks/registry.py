"""Spec -> task: only the list."""

from __future__ import annotations

from typing import assert_never

from core.spec.task import ArithmeticTaskSpec, CustomTaskSpec, Gsm8kTaskSpec, TaskSpec, WorkflowDslTaskSpec
from core.tasks.arithmetic import ArithmeticTask
from core.tasks.base import Task
from core.tasks.workflow_dsl.task import WorkflowDslTask


def build(spec: TaskSpec) -> Task:
    """The task that `spec` asks for. Raises SpecError where the spec asks for what cannot be had."""
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
            assert_never(spec)
